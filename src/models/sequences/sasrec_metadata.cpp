#include "lockstep/models/sequences/sasrec_metadata.hpp"

#include "lockstep/io/h5.hpp"

namespace lockstep {
namespace {

constexpr const char* kGroup = "/sequence_model";

template <class Enum>
Enum parse(const H5File& file, const char* attribute, std::initializer_list<Enum> values) {
  const std::string text = file.text_attribute(kGroup, attribute);
  for (const Enum value : values)
    if (text == name(value)) return value;
  throw Error(Fault::data, join("reading '", file.path().string(), "': attribute ", attribute, " of ", kGroup, " is '",
                                text, "', which this program does not know"));
}

}  // namespace

void save_sasrec_metadata(H5File& file, const SasRecArch& a) {
  file.create_group(kGroup);
  const auto integer = [&](const char* key, std::int64_t value) { file.set_attribute(kGroup, key, value); };
  integer("timed", a.timed);
  integer("items", a.items);
  integer("maxlen", a.slots);
  integer("hidden_units", a.hidden);
  integer("num_heads", a.heads);
  integer("num_blocks", a.blocks);
  integer("time_span", a.time_span);
  integer("ffn_residual", a.ffn_residual);
  integer("mhc_expansion_rate", a.streams);
  integer("mhc_sinkhorn_iter", a.sinkhorn_iterations);
  file.set_attribute(kGroup, "norm", std::string(name(a.norm)));
  file.set_attribute(kGroup, "pad_mask", std::string(name(a.pad_mask)));
  file.set_attribute(kGroup, "mhc", std::string(name(a.mhc)));
  file.set_attribute(kGroup, "ln_eps", a.ln_eps);
}

SasRecArch read_sasrec_metadata(const H5File& file) {
  require_data(file.is_group(kGroup), "reading '", file.path().string(), "': no group ", kGroup,
               ": this is no checkpoint of a sequence model");
  const auto integer = [&](const char* key) { return file.int_attribute(kGroup, key); };
  SasRecArch a;
  a.timed = integer("timed") != 0;
  a.items = integer("items");
  a.slots = integer("maxlen");
  a.hidden = integer("hidden_units");
  a.heads = integer("num_heads");
  a.blocks = integer("num_blocks");
  a.time_span = integer("time_span");
  a.ffn_residual = integer("ffn_residual") != 0;
  a.streams = integer("mhc_expansion_rate");
  a.sinkhorn_iterations = integer("mhc_sinkhorn_iter");
  using Norm = SasRecArch::Norm;
  using PadMask = SasRecArch::PadMask;
  using Mhc = SasRecArch::Mhc;
  a.norm = parse(file, "norm", {Norm::pre, Norm::post, Norm::original});
  a.pad_mask = parse(file, "pad_mask", {PadMask::key, PadMask::none, PadMask::query});
  a.mhc = parse(file, "mhc", {Mhc::none, Mhc::streams, Mhc::collapsed});
  a.ln_eps = file.real_attribute(kGroup, "ln_eps");
  a.check(Fault::data);
  return a;
}

}  // namespace lockstep
