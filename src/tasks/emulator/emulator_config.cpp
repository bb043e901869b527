#include "lockstep/tasks/emulator/emulator_config.hpp"

#include <algorithm>

#include "lockstep/base/options.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"
#include "lockstep/optim/dense_step.hpp"
#include "lockstep/train/ensemble.hpp"
#include "tasks/emulator/jacobian_loss.hpp"

namespace lockstep {

namespace {
/// Keys of the public program's configuration.
void add_public_words(Options& o) {
  using Reply = Options::Reply;
  const auto nothing = [&](const char* names, const std::string& why) {
    o.word(names, true, "nothing: " + why, [why](const std::string&) { return Reply{.note = "nothing: " + why}; });
  };
  nothing("model.input_size,model.output_size", "the data set has the numbers of its columns");
  nothing(
      "variables.input_variables,variables.output_variables,variables.max_input_features,domain.mask_mode,"
      "domain.min_ice_concentration,data.validation_split,data.max_patterns,data.thin_fraction",
      "lockstep-prep chooses columns and rows");
  nothing("data.num_workers", "the threads of a rank draw its samples");
  nothing("training.log_interval", "each epoch has a record; train.log_every counts steps");
  nothing("training.scheduler", "without one the rate is constant");
  nothing("training.use_log_scale_loss", "it is about plots");
  nothing("use_cuda", "--device cuda computes on a GPU");
  const auto off = [&](const char* name, const std::string& key) {
    o.word(name, false, "false: --" + key + " 0", [key](const std::string& value) {
      return value == "false" ? Reply{.keys = {{key, "0"}}} : Reply{};
    });
  };
  off("training.track_jacobian", "jacobian.every");
  off("training.use_jacobian_stopping", "stop.jacobian_tolerance");
  const auto average = std::make_shared<std::pair<bool, std::string>>(false, "0.999");
  const auto averaged = [average] { return Reply{.keys = {{"optim.ema", average->first ? average->second : "0"}}}; };
  o.word("training.use_ema", false, "--optim.ema training.ema_decay, or 0", [=](const std::string& value) {
    average->first = value == "true";
    return averaged();
  });
  o.word("training.ema_decay", true, "--optim.ema, with training.use_ema", [=](const std::string& value) {
    average->second = value;
    return averaged();
  });
}
}  // namespace

void EmulatorConfig::add_options(Options& o) {
  EmulatorArch& arch = model_.arch;
  EmulatorLoss& loss = model_.loss;
  o.add("model.hidden_size,hidden_size", &arch.hidden, 64, between(1, kMostWidth), "width of the hidden layers");
  o.add("model.hidden_layers,hidden_layers", &arch.layers, 3, between(1, kMostLayers), "number of hidden layers");
  o.choice("model.activation", &arch.activation, "gelu",
           {"gelu", "relu", "tanh", "sigmoid", "leakyrelu", "elu", "silu"},
           "activation of the hidden layers (gelu is the exact one, with erf)");
  o.add("model.use_conv1d", &convolution_, false, "apply a convolution over the input columns before the first layer");
  o.add("model.conv_channels", &arch.conv_channels, 32, between(1, kMostWidth), "channels of the convolution");
  o.add("model.conv_kernel_size", &arch.conv_kernel, 3, odd, "width of the convolution; odd");
  o.choice("model.bias_init", &model_.bias_init, BiasInit::zeros,
           "initial biases: zero, or uniform in +-1/sqrt(inputs) as PyTorch does");

  o.section("loss", "Loss");
  o.choice("loss.name,training.loss_function", &loss.kind, ops::Regression::mse, "loss on normalised outputs");
  o.add("loss.smooth_weight", &loss.smooth_weight, 0, non_negative,
        "weight of the squared finite differences of the outputs along the column; 0: off");
  o.add("loss.smooth_order", &loss.smooth_order, 2, between(1, 2), "order of these differences");
  o.add("loss.jacobian", &loss.jacobian, 0, non_negative,
        "weight of the mean squared error of the Jacobian, normalised (Sobolev training); the data set must hold "
        "Jacobians; 0: off");
  o.add("loss.jacobian_directions", &loss.directions, 0, between(0, kMostWidth),
        "number of random directions per row and step in which the Jacobian is compared; 0: the whole Jacobian");
  o.add("loss.constraint", &loss.constraint, "",
        "expressions, separated by ;, that are 0 for a physical prediction, such as max(0, -aice) ; sum(y) - sum(x); "
        "their squares are added to the loss");
  o.add("loss.constraint_weight", &loss.constraint_weight, 1, non_negative, "weight of these squares");

  o.section("ensemble", "Ensemble");
  o.add(kMembersKey, &members_, 1, between(1, 1000),
        "networks that are trained one after the other with seeds run.seed, run.seed + 1, ..., in folders member-N of "
        "the run directory");
  o.add("ensemble.bootstrap", &model_.bootstrap, false, "train on rows that are drawn with replacement, by the seed");
  add_public_words(o);
}

EmulatorTask::Options EmulatorConfig::model_options(DType dtype, std::uint64_t seed) const {
  EmulatorTask::Options options = model_;
  if (!convolution_) options.arch.conv_channels = 0;
  options.dtype = dtype;
  options.seed = seed;
  return options;
}

std::unique_ptr<Task> EmulatorConfig::load(const TaskSource& source) const {
  EmulatorData data = source.data_memory.data_set(source.path, EmulatorData::read);
  if (source.checkpoint != nullptr) {
    const EmulatorDescription description = read_emulator_metadata(*source.checkpoint);
    data.require_columns_of(description.metadata.variables,
                            join("checkpoint '", source.checkpoint->path().string(), "'"));
    data.moments = description.moments;
  }
  EmulatorTask::Options options = model_options(source.dtype, source.seed);
  if (source.checkpoint != nullptr && !data.has_jacobian())
    options.loss.jacobian = 0;  // another data set than trained on
  return std::make_unique<EmulatorTask>(std::move(options), std::move(data));
}

TaskNeeds EmulatorConfig::needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const {
  const H5File file = H5File::open(path);
  require_data(file.has_attribute("/", "n_in") && file.has("/split"), "planning for '", path.string(),
               "': not a prepared emulator data set; make it with lockstep-prep");
  const std::vector<std::uint8_t> split = file.read<std::uint8_t>("/split");
  EmulatorArch arch = model_options(dtype, 0).arch;
  arch.n_in = file.int_attribute("/", "n_in");
  arch.n_out = file.int_attribute("/", "n_out");
  arch.check(Fault::usage);
  const EmulatorLoss& loss = model_.loss;
  loss.check_device(step.on_gpu);
  EmulatorVariables variables;  // only a constraint needs their names, which take longer to read than all else here
  variables.output_names.resize(arch.n_out);
  if (!loss.constraint.empty()) variables = read_variables(file, "/vars", arch.n_in, arch.n_out);
  loss.checked_for(path, variables, file.has("/jac"));

  TaskNeeds needs;
  needs.train_samples = std::ranges::count(split, std::uint8_t{0});
  needs.parameters = arch.parameters();
  const auto rows = static_cast<double>(split.size());
  const std::int64_t columns = arch.n_in + arch.n_out + (file.has("/jac") ? arch.n_in * arch.n_out : 0);
  needs.data_rows = std::ssize(split);
  needs.row_bytes = 4 * static_cast<double>(columns);
  needs.data_bytes = rows * (needs.row_bytes + 4);
  needs.least_shard = needs.least_tree_shard = EmulatorTask::kLeastShard;
  const std::int64_t directions = loss.jacobian > 0 ? jacobian_directions(loss.directions, arch.n_in, arch.n_out) : 0;
  const auto element = static_cast<double>(size_bytes(dtype));
  if (step.on_gpu && loss.jacobian == 0)
    needs.gpu_data_bytes = rows * 4 * static_cast<double>(arch.n_in + arch.n_out + 1);
  // One kernel keeps weights and values in shared memory, and the gradients of its parts in GPU memory (DenseStep).
  constexpr double kShared = 200e3;  // bytes of a block, on a large GPU, for weights
  if (step.on_gpu && directions == 0 && arch.conv_channels == 0 && loss.smooth_weight == 0 && !is_half(dtype) &&
      arch.layers < 9 && static_cast<double>(needs.parameters) * element <= kShared) {
    needs.rank_bytes = static_cast<double>(DenseStep::kMostParts + 1) * static_cast<double>(needs.parameters) * element;
    return needs;
  }
  // Inputs and targets, each normalised and in tiles; each hidden value, its slope and its gradient.
  const double hidden = static_cast<double>(arch.hidden * arch.layers + arch.conv_channels * arch.n_in);
  needs.activation_bytes_per_sample =
      element * (2 * static_cast<double>(arch.n_in + arch.n_out) + 3 * hidden) * static_cast<double>(1 + directions);
  return needs;
}

}  // namespace lockstep
