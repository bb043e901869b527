#include <exception>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/models/emulator_model.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/agreement.hpp"

namespace lockstep {

namespace {

std::unique_ptr<Model> build(const RunConfig& c, Placement& placement, const H5File* card) {
  EmulatorData data = EmulatorData::read(c.data.path, placement);
  if (card != nullptr) {
    const EmulatorDescription description = read_emulator_card(*card);
    require_data(description.card.variables.input_names == data.variables.input_names &&
                     description.card.variables.output_names == data.variables.output_names,
                 "checkpoint ", card->path(), " was trained on other variables than those of ", data.path);
    data.moments = description.moments;
  }
  EmulatorModel::Options options;
  options.arch.hidden = c.model.hidden_size;
  options.arch.layers = c.model.hidden_layers;
  options.arch.activation = c.model.activation;
  options.arch.conv_channels = c.model.use_conv1d ? c.model.conv_channels : 0;
  options.arch.conv_kernel = c.model.conv_kernel_size;
  options.loss = {.name = c.loss.name, .smooth_weight = c.loss.smooth_weight, .smooth_order = c.loss.smooth_order};
  options.dtype = c.run.precision == "fp64" ? DType::f64 : DType::f32;
  options.seed = c.run.seed;
  options.bias_init = c.model.bias_init == "torch" ? BiasInit::torch : BiasInit::zeros;
  return std::make_unique<EmulatorModel>(std::move(options), std::move(data));
}

}  // namespace

std::unique_ptr<Model> load_model(World& world, const RunConfig& config, Placement& placement, const H5File* card) {
  std::unique_ptr<Model> model;
  std::exception_ptr failure;
  try {
    model = build(config, placement, card);
  } catch (const Departure&) {
    throw;  // everybody is leaving already
  } catch (...) {
    failure = std::current_exception();
  }
  // Where the other ranks place their next array or arrive here, so that all leave together.
  world.together("loading the data set", [&] {
    if (failure) std::rethrow_exception(failure);
  });
  require_same(world, "data set", hex64(model->data_hash()), "all ranks must read the same file");
  return model;
}

}  // namespace lockstep
