#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/tasks/emulator/emulator_config.hpp"
#include "lockstep/tasks/weight_exchange.hpp"

namespace lockstep {

namespace {

constexpr AskedOption kAsked[] = {{"model.activation", "gelu"}};

OptionValues options_of(const NamedArrays& arrays, const Options&) {
  OptionValues values;
  std::int64_t layers = 0;
  while (arrays.find(join("network.", 2 * layers + 2, ".weight")) != nullptr) ++layers;
  add_size(values, "model.hidden_layers", layers);
  if (layers > 0) add_size(values, "model.hidden_size", extent(arrays, "network.0.weight", 0));
  const bool convolution = arrays.find("conv1d.weight") != nullptr;
  values.emplace_back("model.use_conv1d", convolution ? "true" : "false");
  add_size(values, "model.conv_channels", extent(arrays, "conv1d.weight", 0));
  if (const std::int64_t kernel = extent(arrays, "conv1d.weight", 2); kernel % 2 == 1)
    add_size(values, "model.conv_kernel_size", kernel);
  // A model file that Lockstep has exported says it in its own entry.
  if (const auto entry = arrays.metadata.find("activation"); entry != arrays.metadata.end())
    values.emplace_back("model.activation", entry->second);
  return values;
}

std::string from_data(const NamedArrays& arrays) {
  const bool beside = arrays.find(kMoments[0].first) != nullptr;
  return join("names and units of the variables", beside ? "" : ", their means and standard deviations");
}

/// Moments beside the weights replace those of the data set: the network was trained with them.
std::unique_ptr<Task> load(const EmulatorConfig& config, const TaskSource& source, NamedArrays& arrays) {
  EmulatorData data = EmulatorData::read(source.path, source.data_memory);
  if (const auto its = described_emulator(arrays.metadata, "the weights"))
    data.require_columns_of(its->metadata.variables, "the network of the weights");
  Moments& m = data.moments;
  std::size_t found = 0;
  for (const auto& [name, part] : kMoments) {
    std::vector<double>& values = m.*part;
    const auto array = std::ranges::find(arrays.arrays, name, &NamedArray::name);
    if (array == arrays.arrays.end()) continue;
    require_data(array->count() == values.size(), "importing the array ", name, ": ", array->count(), " values, '",
                 source.path.string(), "' has ", values.size(), " variables of that side");
    std::visit([to = values.begin()](const auto& from) { std::ranges::copy(from, to); }, array->values);
    arrays.arrays.erase(array);
    ++found;
  }
  require_data(found == 0 || found == 4, "importing the normalisation: ", found,
               " of input_mean, input_std, output_mean and output_std; give all or none of them");
  check_moments(m, data.n_in(), data.n_out(), "importing the normalisation");
  return std::make_unique<EmulatorTask>(config.model_options(source.dtype, source.seed), std::move(data));
}

}  // namespace

WeightExchange exchange_emulator() {
  return {.options = options_of,
          .asked = kAsked,
          .upstream = "the public emulator",
          .from_data = from_data,
          .load = of_base<load>};
}

}  // namespace lockstep
