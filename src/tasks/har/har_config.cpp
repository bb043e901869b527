#include "lockstep/tasks/har/har_config.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/base/log.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/har/har_weights.hpp"
#include "tasks/har/har_augment.hpp"

namespace lockstep {

namespace {

/// Parses "64,32" or "none".
std::vector<std::int64_t> widths_of(const std::string& text) {
  std::vector<std::int64_t> widths;
  if (text == "none") return widths;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    const std::int64_t width = number_in<std::int64_t>(trim(word)).value_or(0);
    require_usage(width >= 1 && width <= kMostWidth, "option model.hidden = ", text, ": must be widths from 1 to ",
                  kMostWidth, ", such as 512 or 256,64, or none");
    widths.push_back(width);
  }
  require_usage(!widths.empty(), "option model.hidden is empty: must be widths such as 512 or 256,64, or none");
  return widths;
}

/// Default sizes for one kind of input.
struct Sizes {
  std::int64_t dim, layers, heads, head_width, mlp;
  bool pre_norm;
  const char* hidden;
};
constexpr Sizes kSignal = {64, 3, 4, 16, 128, true, "64"}, kImage = {768, 12, 12, 64, 3072, false, "512"};

/// Gives the data set the normalisation of a network, called `where` in messages.
/// errors  data: other windows, see HarData::differences()
void normalise_as_trained(HarData& data, const HarMetadata& trained, const std::string& where) {
  const std::string differences = data.differences(trained);
  require_data(differences.empty(), where, " was trained on other windows than those of '", data.path.string(),
               "': ", differences, "; prepare the recordings like those of the training");
  data.channel_mean = trained.channel_mean;
  data.channel_std = trained.channel_std;
  require_data(
      data.channel_mean.size() == data.channel_names.size() && data.channel_std.size() == data.channel_names.size(),
      where, ": ", data.channel_mean.size(), " means for ", data.channels(), " channels");
}

/// errors  usage: an augmentation that changes no window of this data set
void require_effect(const HarAugment& augment, const HarTask& model) {
  const HarData& data = model.data();
  require_usage(augment.turn == 0 || !triads_of(data.channel_names).empty(), "option augment.turn = ", augment.turn,
                ": no three neighbouring channels of '", data.path.string(),
                "' are named like acc_x, acc_y, acc_z, so nothing would turn; they are ", listed(data.channel_names),
                "; name them so, or set it to 0");
  const auto followed = [&](std::int32_t n) { return data.following.data<std::int32_t>()[2 * n] >= 0; };
  require_usage(!augment.shift || std::ranges::any_of(model.train_windows(), followed),
                "option augment.shift = true: no training window of '", data.path.string(),
                "' overlaps or touches the next one of its recording (uci-har stores no recordings), so none would "
                "shift; prepare the data with a --stride of at most the window, or set it to false");
}

}  // namespace

void HarConfig::add_options(Options& o) {
  HarArch& arch = model_.arch;
  HarAugment& augment = model_.augment;
  o.choice("model.input", &arch.input, HarArch::Input::signal,
           "source of the patches: the samples of a channel, or a picture of it as a line, drawn on demand");
  o.choice("model.mode,mode", &arch.mode, HarArch::Mode::flatten,
           "input of one classification: all channels side by side, one channel, the mean of the channels, the first "
           "channel");
  o.choice("model.pool,pool", &arch.pool, HarArch::Pool::attention, "pooling of a channel's tokens");
  o.add("model.patch,patch-size", &arch.patch, 16, between(1, kMostWidth), "samples in a patch, or its side in pixels");
  o.add("model.image", &arch.image, 224, between(1, 10000), "images: side in pixels");
  o.add("model.dim", &arch.dim, 0, between(0, kMostWidth), "width of a token; 0: 64 for signals, 768 for images");
  o.add("model.layers", &arch.layers, -1, between(-1, kMostLayers), "encoder layers; -1: 3 for signals, 12 for images");
  o.add("model.heads", &arch.heads, 0, between(0, kMostWidth), "attention heads; 0: 4 for signals, 12 for images");
  o.add("model.head_width", &arch.head_width, 0, between(0, kMostWidth),
        "width of a head; 0: 16 for signals, 64 for images");
  o.add("model.mlp", &arch.mlp, 0, between(0, kMostWidth), "width inside the MLP; 0: 128 for signals, 3072 for images");
  o.choice(
      "model.mlp_norm,mlp-norm", &mlp_norm_, "auto", {"auto", "pre", "post"},
      "layer norm before the MLP or after its residual; auto: pre for signals, post for images (as in the reference)");
  o.add("model.ln_eps,ln-eps", &arch.norm_eps, 1e-5, positive, "epsilon added to the variance in layer norms");
  o.add("model.hidden,hidden-dims=N,N|none", &hidden_, "auto",
        "widths of the classifier's hidden layers, or none; auto: 64 for signals, 512 for images");
  o.add("model.dropout,dropout", &arch.dropout, 0.1, below_one, "dropout in the classifier");
  o.add("model.encoder_dropout", &arch.encoder_dropout, 0.1, below_one,
        "dropout in the encoder: on attention weights, after the attention, inside and after the MLP");
  o.add("model.freeze_encoder,freeze-encoder", &arch.frozen, false, "train pooling and classifier only");
  o.add("model.frozen_dropout,frozen-dropout", &arch.frozen_dropout, false, "keep the dropout of a frozen encoder");
  o.add("model.encoder_weights,encoder-weights=FILE", &encoder_weights_, "",
        "HDF5, safetensors, .npz or .pt file with initial weights of the encoder; names and shapes must match the "
        "network");

  o.add("data.percent,data-pct", &model_.percent, 100, between(0, 100),
        "share of the training windows of each class to use")
      .unit("%");
  o.choice("data.balance", &model_.balance, HarBalance::none,
           "compensate for classes with few training windows: draw all classes equally often (sampling), or weight the "
           "loss of a window by the inverse number of windows of its class (weights)");
  o.add("data.folds=N|subjects|none", &folds_.how, "none",
        "cross-validation over the subjects of all splits: a number of folds, with nearly equal classes, or subjects, "
        "for one fold per subject; lockstep folds trains all of them");
  o.add("data.fold", &folds_.number, 0, non_negative,
        "the fold whose subjects are tested, from 1; all others are trained on");

  o.section("augment", "Augmentation", "Of training windows, drawn again in every epoch.");
  o.add("augment.pictures,augmentation", &augment.pictures, true,
        "images: mirror, change brightness and contrast by up to 0.2, rotate by up to 15 degrees, per channel");
  o.add("augment.shift", &augment.shift, false,
        "shift windows by up to the distance to the next one of the same recording and class, if it is at most a "
        "window");
  o.add("augment.turn", &augment.turn, 0, non_negative,
        "rotate the axes of all sensors, three channels NAMEx, NAMEy, NAMEz each, together: standard deviation of the "
        "angle")
      .unit("degrees");
  o.add("augment.stretch", &augment.stretch, 0, non_negative,
        "multiply each sensor by a random factor with mean 1: standard deviation of the factor");

  o.section("loss", "Loss");
  o.add("loss.label_smoothing,label-smoothing", &model_.smoothing, 0.1, below_one,
        "label smoothing, in training and in every reported loss");

  o.set_defaults({"optim.name = adamw", "optim.lr = 0.001", "optim.weight_decay = 0.0001", "optim.clip_norm = 1",
                  "batch.size = 32", "train.epochs = 20", "schedule.name = cosine", "schedule.warmup = 2",
                  "schedule.origin = 1", "schedule.min_lr = 1e-06", "eval.best = accuracy", "stop.patience = 7",
                  "stop.min_delta = 1e-05", "stop.tolerance = 0"});
  o.alias("optim.clip_norm", "max-grad-norm");
  o.word("batch-size", true, "batch.per_rank: the samples of each process", [](const std::string& samples) {
    return Options::Reply{.keys = {{"batch.per_rank", samples}}};
  });
  o.word("no-amp", false, "--precision fp32", [](const std::string& value) {
    return value == "false" ? Options::Reply{} : Options::Reply{.keys = {{"run.precision", "fp32"}}};
  });
  o.alias("batch.accumulate", "grad-accum-steps");
  o.alias("train.log_every", "log-interval");
  o.alias("schedule.warmup", "warmup-epochs");
  o.alias("stop.patience", "early-stopping-patience");
  o.alias("run.dir", "save-dir");
}

HarArch HarConfig::arch() const {
  HarArch arch = model_.arch;
  const Sizes& sizes = arch.input == HarArch::Input::image ? kImage : kSignal;
  if (arch.dim == 0) arch.dim = sizes.dim;
  if (arch.layers < 0) arch.layers = sizes.layers;
  if (arch.heads == 0) arch.heads = sizes.heads;
  if (arch.head_width == 0) arch.head_width = sizes.head_width;
  if (arch.mlp == 0) arch.mlp = sizes.mlp;
  arch.pre_norm = mlp_norm_ == "auto" ? sizes.pre_norm : mlp_norm_ == "pre";
  arch.hidden = widths_of(hidden_ == "auto" ? sizes.hidden : hidden_);
  return arch;
}

void HarConfig::check() const {
  require_usage(model_.percent > 0, "option data.percent = ", model_.percent, ": must be > 0");
  arch();
  const std::string& how = folds_.how;
  const bool number = !how.empty() && how.size() < 10 && how.find_first_not_of("0123456789") == std::string::npos;
  require_usage(how == "none" || how == "subjects" || (number && std::stoll(how) >= 2), "option data.folds = ", how,
                ": must be a number of folds, at least 2, or subjects, or none");
  require_usage(folds_.given() || folds_.number == 0, "option data.fold = ", folds_.number,
                ": set data.folds too, to a number of folds or to subjects");
}

void HarConfig::read_for_prediction() {
  labels_ = HarData::Labels::optional;
  if (folds_.given())
    log::warning("data.folds = ", folds_.how,
                 " is ignored: predictions use the splits of the file, which may include training windows of the fold");
  folds_ = {};
}

std::vector<std::string> HarConfig::folds(const std::filesystem::path& path) const {
  return folds_.given() ? HarData::folds(path, folds_.how) : std::vector<std::string>{};
}

std::unique_ptr<Task> HarConfig::load(const TaskSource& source) const {
  if (source.checkpoint == nullptr) return load(source, nullptr, "");
  const HarMetadata trained = trained_windows(*source.checkpoint);
  return load(source, &trained, join("checkpoint '", source.checkpoint->path().string(), "'"));
}

std::unique_ptr<Task> HarConfig::load(const TaskSource& source, const HarMetadata* trained,
                                      const std::string& where) const {
  HarData data = source.data_memory.data_set(
      source.path, [&](const auto& path, DataMemory& memory) { return HarData::read(path, memory, labels_, folds_); });
  require_data(trained != nullptr || data.count[0] > 0, "opening data set '", source.path.string(),
               "': it has no training windows; it serves only to evaluate a trained model");
  if (trained != nullptr) normalise_as_trained(data, *trained, where);
  HarTask::Options options = model_;
  options.arch = arch();
  options.dtype = source.dtype;
  options.seed = source.seed;
  auto model = std::make_unique<HarTask>(std::move(options), std::move(data));
  if (trained == nullptr) require_effect(model_.augment, *model);
  if (!encoder_weights_.empty() && source.reads_initial_weights())
    load_encoder_weights(model->network(), encoder_weights_);
  return model;
}

TaskNeeds HarConfig::needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const {
  const H5File file = H5File::open(path);
  require_data(file.has("/train/signals") && file.info("/train/signals").shape.size() == 3, "planning for '",
               path.string(), "': not a prepared activity data set; make it with lockstep-prep");
  HarArch network = arch();
  const std::vector<std::int64_t> shape = file.info("/train/signals").shape;
  network.channels = shape[1];
  network.length = shape[2];
  network.classes = static_cast<std::int64_t>(file.text_list("/", "class_names").size());
  network.check();

  const bool single = network.mode == HarArch::Mode::independent;
  TaskNeeds needs;
  needs.parameters = network.parameters();
  double windows = 0;
  for (const char* part : {"/train/labels", "/val/labels", "/test/labels"})
    windows += static_cast<double>(file.info(part).shape[0]);
  std::map<std::int32_t, std::int64_t> classes;
  for (const std::int32_t label : HarData::train_labels(path, folds_)) ++classes[label];
  for (const auto& [label, count] : classes) needs.train_samples += windows_kept(count, model_.percent);
  if (single) needs.train_samples *= network.channels;
  needs.data_rows = static_cast<std::int64_t>(windows);
  needs.least_tree_shard = HarTask::least_tree_shard(network);
  needs.row_bytes = 8 * static_cast<double>(shape[1] * shape[2]);
  needs.data_bytes = windows * (needs.row_bytes + 12);
  // Values of a token that a pass keeps: embedding, pooling and their gradients; per layer two norms, queries, keys and
  // values, attention and its projection, two residuals, and the MLP.
  const double columns = static_cast<double>(network.heads * network.head_width),
               dim = static_cast<double>(network.dim);
  const double token =
      9 * dim + static_cast<double>(network.layers) * (6.5 * dim + 8 * columns + 3 * static_cast<double>(network.mlp));
  needs.activation_bytes_per_sample =
      static_cast<double>(size_bytes(dtype)) * static_cast<double>(network.sequences() * network.tokens()) * token;
  if (step.on_gpu && network.input == HarArch::Input::signal) needs.gpu_data_bytes = windows * needs.row_bytes;
  return needs;
}

}  // namespace lockstep
