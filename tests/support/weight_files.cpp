#include "support/weight_files.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "lockstep/io/h5.hpp"
#include "lockstep/models/har/har_weights.hpp"
#include "lockstep/models/hrm/hrm_weights.hpp"
#include "lockstep/models/kgat/kgat_weights.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"
#include "support/npy.hpp"
#include "support/paths.hpp"

namespace lockstep::test {
namespace {

NamedArrays as_file(NamedArrays arrays, const std::string& kind) {
  arrays.metadata = {{kFormatEntry, kWeightsFormat}, {"version", "1"}, {kKindEntry, kind}};
  return arrays;
}

/// The initial values, changed so that no norm or bias is trivial.
NamedArrays changed(const ParamStore& params) {
  NamedArrays arrays = arrays_of(params);
  for (NamedArray& array : arrays.arrays) {
    auto& values = std::get<std::vector<float>>(array.values);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += 0.1f * std::sin(1.7f * static_cast<float>(i + array.name.size()));
  }
  return arrays;
}

NamedArrays original_sasrec() {
  SasRecArch arch;
  arch.items = 30;
  arch.slots = 9;
  arch.hidden = 8;
  arch.heads = 2;
  arch.norm = SasRecArch::Norm::original;
  const SasRec network(arch, DType::f32, 5);
  NamedArrays file = as_file(changed(network.params()), "sasrec");
  describe(file.metadata, arch);
  return file;
}

/// Histories of different lengths, right-aligned after zeros, with the values of next(sample, slot).
std::string histories(std::int64_t n, std::int64_t slots, const auto& next) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(n * slots), 0);
  for (std::int64_t b = 0; b < n; ++b)
    for (std::int64_t t = slots - 1 - b % slots; t < slots; ++t)
      values[static_cast<std::size_t>(b * slots + t)] = next(b, t);
  return bytes_of(values);
}

}  // namespace

NamedArrays golden_sequence_file(const std::string& name) {
  using Norm = SasRecArch::Norm;
  using PadMask = SasRecArch::PadMask;
  using Mhc = SasRecArch::Mhc;
  const H5File golden = H5File::open(golden_path(name + ".h5"));
  const auto text = [&](const char* key) { return golden.text_attribute("/", key); };
  const auto one_of = [&](const char* key, auto values) {
    for (const auto value : values)
      if (text(key) == lockstep::name(value)) return value;
    throw Error(Fault::data, join(name, ": ", key, " = ", text(key)));
  };
  SasRecArch arch;
  arch.timed = text("model") == "tisasrec";
  arch.items = golden.int_attribute("/", "items");
  arch.slots = golden.int_attribute("/", "maxlen");
  arch.hidden = golden.int_attribute("/", "hidden");
  arch.heads = golden.int_attribute("/", "heads");
  arch.blocks = golden.int_attribute("/", "blocks");
  arch.time_span = golden.int_attribute("/", "time_span");
  arch.norm = one_of("norm", std::array{Norm::pre, Norm::post, Norm::original});
  arch.pad_mask = one_of("pad_mask", std::array{PadMask::key, PadMask::none, PadMask::query});
  arch.mhc = one_of("mhc", std::array{Mhc::none, Mhc::streams, Mhc::collapsed});
  arch.streams = golden.int_attribute("/", "n_streams");
  arch.sinkhorn_iterations = golden.int_attribute("/", "sinkhorn_iters");
  arch.ffn_residual = golden.int_attribute("/", "ffn_residual") != 0;
  arch.ln_eps = golden.real_attribute("/", "ln_eps");
  NamedArrays file = as_file(h5_arrays(golden, "/weights"), arch.timed ? "tisasrec" : "sasrec");
  describe(file.metadata, arch);
  return file;
}

HarArch small_har(HarArch::Mode mode, HarArch::Pool pool, bool pre_norm) {
  HarArch arch = {.mode = mode, .pool = pool, .channels = 3, .pre_norm = pre_norm};
  arch.length = 23;  // the last patch is not full
  arch.patch = 5;
  arch.dim = 12;
  arch.layers = 2;
  arch.heads = 2;
  arch.head_width = 8;
  arch.mlp = 10;
  arch.hidden = {7, 5};
  arch.classes = 4;
  return arch;
}

HarMetadata har_data(const HarArch& arch) {
  HarMetadata data;
  data.sample_rate = 50;
  for (std::int64_t k = 0; k < arch.classes; ++k) data.class_names.push_back(join("class", k));
  for (std::int64_t c = 0; c < arch.channels; ++c) {
    data.channel_names.push_back(join("channel", c));
    data.channel_mean.push_back(static_cast<double>(c) - 0.5);
    data.channel_std.push_back(1 + 0.25 * static_cast<double>(c));
  }
  return data;
}

NamedArrays har_file(const HarArch& arch) {
  const Har network(arch, DType::f32, 3);
  NamedArrays file = as_file(changed(network.params()), "har");
  describe(file.metadata, arch, har_data(arch));
  return file;
}

NamedArrays bprmf_file() {
  ParamStore params;
  params.add("user_embed.weight", {6, 5}, init::zeros());
  params.add("item_embed.weight", {9, 5}, init::zeros());
  params.allocate(0);
  NamedArrays file = as_file(changed(params), "bprmf");
  describe(file.metadata, {.users = 6, .items = 9, .width = 5});
  return file;
}

NamedArrays hrm_file() {
  HrmArch arch = {.seq_len = 7, .vocab = 6, .identifiers = 3, .hidden = 8, .heads = 2};
  arch.h_layers = arch.l_layers = 1;
  const Hrm network(arch, DType::f32, 2);
  NamedArrays file = as_file(changed(network.params()), "hrm");
  describe(file.metadata, arch);
  file.metadata[kSegmentsEntry] = "4";
  return file;
}

std::vector<std::pair<std::string, NamedArrays>> network_files() {
  using Mode = HarArch::Mode;
  using Pool = HarArch::Pool;
  std::vector<std::pair<std::string, NamedArrays>> files = {
      {"har_flatten", har_file(small_har(Mode::flatten, Pool::attention, true))},
      {"har_independent", har_file(small_har(Mode::independent, Pool::mean, false))},
      {"har_average", har_file(small_har(Mode::average, Pool::attention, false))},
      {"har_first", har_file(small_har(Mode::first, Pool::mean, true))},
      {"sasrec_original", original_sasrec()},
      {"bprmf", bprmf_file()}};
  for (const char* name : {"tisasrec_sasrec", "tisasrec_sasrec_postln", "tisasrec_default_sasrec",
                           "tisasrec_sasrec_mhc", "tisasrec_tisasrec", "tisasrec_default_tisasrec"})
    files.emplace_back(std::string(name).substr(std::strlen("tisasrec_")), golden_sequence_file(name));
  return files;
}

std::unique_ptr<ArrayFunction> function_of(const NamedArrays& file) {
  const std::string& kind = file.metadata.at(kKindEntry);
  return (kind == "har"     ? har_function
          : kind == "hrm"   ? hrm_function
          : kind == "bprmf" ? bprmf_function
                            : sasrec_function)(file, "testing");
}

NetworkCase make_case(const ArrayFunction& function, std::int64_t n) {
  NetworkCase out;
  for (const ArrayFunction::Array& array : function.inputs()) {
    if (array.name == "x") {
      std::vector<float> x(static_cast<std::size_t>(n * array.count()));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * std::sin(0.37f * static_cast<float>(i * i % 1009));
      out.inputs.push_back(bytes_of(x));
    } else if (function.inputs()[0].name == "users") {
      const std::int64_t rows = array.name == "users" ? 6 : 9;
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(n * array.count()));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(5 * i + i / 7) % rows;
      out.inputs.push_back(bytes_of(numbers));
    } else if (array.name == "items") {
      const std::int64_t items = function.outputs()[0].count();
      out.inputs.push_back(
          histories(n, array.extents[0], [&](std::int64_t b, std::int64_t t) { return 1 + (7 * b + 5 * t) % items; }));
    } else {
      out.inputs.push_back(
          histories(n, array.extents[0], [](std::int64_t b, std::int64_t t) { return 1 + t * (1 + b % 3); }));
    }
  }
  std::vector<const void*> in;
  std::vector<void*> results;
  for (const std::string& input : out.inputs) in.push_back(input.data());
  for (const ArrayFunction::Array& array : function.outputs())
    results.push_back(out.outputs.emplace_back(static_cast<std::size_t>(n * array.count()) * 4, '\0').data());
  Arena arena;
  function.predict(n, in, results, arena);
  return out;
}

}  // namespace lockstep::test
