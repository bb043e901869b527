#include "lockstep/models/har/har_weights.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

void visit(TextFields& fields, HarArch& a, HarMetadata& d) {
  fields("model.input", a.input);
  fields("model.mode", a.mode);
  fields("model.pool", a.pool);
  fields("model.channels", a.channels);
  fields("model.length", a.length);
  fields("model.image", a.image);
  fields("model.patch", a.patch);
  fields("model.dim", a.dim);
  fields("model.layers", a.layers);
  fields("model.heads", a.heads);
  fields("model.head_width", a.head_width);
  fields("model.mlp", a.mlp);
  fields("model.pre_norm", a.pre_norm);
  fields("model.ln_eps", a.norm_eps);
  fields("model.hidden", a.hidden);
  fields("model.classes", a.classes);
  fields("data.class_names", d.class_names);
  fields("data.channel_names", d.channel_names);
  fields("data.channel_mean", d.channel_mean);
  fields("data.channel_std", d.channel_std);
  fields("data.sample_rate", d.sample_rate);
}

}  // namespace

void describe(WeightMetadata& metadata, HarArch arch, HarMetadata data) {
  TextFields fields(&metadata);
  visit(fields, arch, data);
}

void parse(const WeightMetadata& metadata, const std::string& what, HarArch& arch, HarMetadata& data) {
  require_exported(metadata, "har", what);
  TextFields fields(&metadata, what);
  visit(fields, arch, data);
  data.length = arch.length;
  const bool positive = std::min({arch.channels, arch.length, arch.image, arch.patch, arch.dim, arch.heads,
                                  arch.head_width, arch.mlp, arch.classes}) >= 1 &&
                        arch.layers >= 0 && arch.norm_eps > 0;
  require_data(positive, what, ": its metadata have an extent below 1");
  const auto channels = static_cast<std::size_t>(arch.channels);
  require_data(data.class_names.size() == static_cast<std::size_t>(arch.classes) &&
                   data.channel_names.size() == data.channel_mean.size() &&
                   data.channel_mean.size() == data.channel_std.size() && data.channel_names.size() == channels,
               what, ": its metadata name ", data.class_names.size(), " classes and ", data.channel_names.size(),
               " channels, expected ", arch.classes, " and ", channels);
  try {
    arch.check();
  } catch (const Error& error) {
    throw Error(Fault::data, what + ": " + error.what());
  }
}

}  // namespace lockstep
