#include <cmath>

#include "lockstep/base/options.hpp"
#include "lockstep/formats/network_onnx.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/har/har_weights.hpp"
#include "lockstep/tasks/har/har_config.hpp"
#include "lockstep/tasks/weight_exchange.hpp"

namespace lockstep {

namespace {

constexpr AskedOption kAsked[] = {
    {"model.mode", "flatten"},
    {"model.heads", "12"},
    {"model.mlp_norm", "post"},
    {"model.ln_eps", "1e-5 (1e-12 in published ViT weights)"},
};

OptionValues options_of(const NamedArrays& arrays, const Options& set) {
  OptionValues values;
  const bool image = arrays.find("encoder.stem_conv.weight") != nullptr;
  const std::string stem = image ? "encoder.stem_conv.weight" : "encoder.stem.weight";
  const std::int64_t patch = extent(arrays, stem, -1);
  values.emplace_back("model.input", image ? "image" : "signal");
  add_size(values, "model.dim", extent(arrays, stem, 0));
  add_size(values, "model.patch", patch);
  if (image) {
    const auto tokens = static_cast<double>(extent(arrays, "encoder.pos_embedding", 1));
    add_size(values, "model.image", patch * static_cast<std::int64_t>(std::llround(std::sqrt(tokens))));
  }
  add_size(values, "model.layers", count_arrays(arrays, "encoder.encoder_layers.#.mha_ln.weight"));
  add_size(values, "model.mlp", extent(arrays, "encoder.encoder_layers.0.mlp.dense1.weight", 0));
  const std::int64_t columns = extent(arrays, "encoder.encoder_layers.0.mha.query_dense.weight", 0);
  // The arrays hold the product of these two only.
  for (const auto& [known, other] :
       {std::pair{"model.heads", "model.head_width"}, std::pair{"model.head_width", "model.heads"}}) {
    const std::int64_t parts = set.given(known) ? std::stoll(set.value(known)) : 0;
    if (parts > 0 && columns % parts == 0) add_size(values, other, columns / parts);
  }
  values.emplace_back("model.pool", arrays.find("pooling.attention.0.weight") != nullptr ? "attention" : "mean");
  std::string hidden;
  for (std::int64_t i = 0; extent(arrays, join("classifier.head.", 4 * i + 4, ".weight"), 0) > 0; ++i)
    hidden += (i > 0 ? "," : "") + std::to_string(extent(arrays, join("classifier.head.", 4 * i, ".weight"), 0));
  values.emplace_back("model.hidden", hidden.empty() ? "none" : hidden);
  return values;
}

void describe_network(const HarConfig& config, const H5File& checkpoint, const H5File*, const NamedArrays&,
                      WeightMetadata& metadata) {
  HarArch arch = config.arch();
  const HarMetadata data = trained_windows(checkpoint);
  arch.channels = std::ssize(data.channel_names);
  arch.length = data.length;
  arch.classes = std::ssize(data.class_names);
  describe(metadata, arch, data);
}

/// Whether lockstep export has written the file, with the names and the normalisation of the training.
bool is_exported(const NamedArrays& file) {
  const auto is = [&](const char* entry, const char* value) {
    const auto found = file.metadata.find(entry);
    return found != file.metadata.end() && found->second == value;
  };
  return is(kFormatEntry, kWeightsFormat) && is(kKindEntry, "har");
}

std::string from_data(const NamedArrays& file) {
  return is_exported(file) ? "units of the channels"
                           : "names of the classes; names, means and standard deviations of the channels";
}

std::unique_ptr<Task> load(const HarConfig& config, const TaskSource& source, NamedArrays& file) {
  if (!is_exported(file)) return config.load(source);
  HarArch arch;
  HarMetadata trained;
  parse(file.metadata, "importing the weights", arch, trained);
  return config.load(source, &trained, "the network of the weights");
}

}  // namespace

WeightExchange exchange_har() {
  return {.options = options_of,
          .asked = kAsked,
          .upstream = "ts2seq",
          .from_data = from_data,
          .describe = of_base<describe_network>,
          .load = of_base<load>,
          .onnx = har_onnx};
}

}  // namespace lockstep
