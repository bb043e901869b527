#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lockstep/models/har/har.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/samples/rasteriser.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/train/stopping.hpp"
#include "tasks/har/har_metrics.hpp"
#include "tasks/verifier.hpp"

namespace lockstep {
namespace {

// Tolerances relative to an array's largest value. In brackets: the difference between the reference's own single and
// double precision.
constexpr double kDouble = 1e-10;
constexpr Tolerance kOutput{1e-5, kDouble};
constexpr Tolerance kGradient{5e-5, kDouble};  // [5e-6]
constexpr Tolerance kLossAfter{1e-4, 1e-9};    // of the changed weights
constexpr double kRounding = 1e-5;             // of gradients in single precision: twice the reference's
/// Absolute, after the steps, for weights near 1 that are rounded in each; AdamDifference adds what a difference of the
/// gradients explains.
constexpr double kWeights = 1e-6;
/// Gradients that are zero but for rounding: adding the same to all scores of a softmax changes nothing.
constexpr double kNothing = 1e-6;
bool vanishes(const std::string& name) {
  return name.ends_with(".key_dense.bias") || name == "pooling.attention.2.bias";
}

/// The largest difference between the weights of two runs of Adam whose gradients differ by rounding.
///
/// Adam moves a weight by lr u, u = m / (sqrt(v) + eps). If each gradient of two runs differs by at most d, then so do
/// m and sqrt(v), and u by at most d (1 + |u|) / (sqrt(v) + eps). It cannot differ by more than the sum of both |u|.
/// This is large where a gradient is not much larger than d: har_accum_clip has a key weight ([1867] of layer 0) with
/// the gradient -3e-9 in the first step, where the largest of its array is 3e-4. It differs by 2e-5 to 6e-5, which
/// depends on the order of sums; most others differ by 1e-6.
class AdamDifference {
 public:
  explicit AdamDifference(const OptimizerOptions& adam) : beta2_(adam.beta2), eps_(adam.eps) {}
  /// gradient  of a step, times `scale`; d is the largest element of a parameter times `rounding`
  void add_step(const ParamStore& params, const Tensor& gradient, double scale, double lr, double rounding) {
    correction_ *= beta2_;
    constexpr double kMostMove = 1.1;  // |u| in the first steps, by Cauchy and Schwarz
    for (const auto& [name, values] : by_parameter(params, gradient, scale)) {
      Bounds& b = bounds_[name];
      b.square.resize(values.size());
      b.bound.resize(values.size());
      for (const double g : values) b.rounding = std::max(b.rounding, rounding * std::abs(g));
      for (std::size_t i = 0; i < values.size(); ++i) {
        b.square[i] += (1 - beta2_) * (values[i] * values[i] - b.square[i]);
        const double root = std::sqrt(b.square[i] / (1 - correction_));
        b.bound[i] += lr * std::min(2 * kMostMove, b.rounding * (1 + kMostMove) / (root + eps_));
      }
    }
  }
  const std::vector<double>& of(const std::string& parameter) const { return bounds_.at(parameter).bound; }

 private:
  struct Bounds {
    double rounding = 0;  ///< d
    std::vector<double> square, bound;
  };
  double beta2_, eps_, correction_ = 1;
  std::map<std::string, Bounds> bounds_;  ///< by parameter
};

struct Sizes {
  std::int64_t batch, steps, accumulate;
  std::int64_t per_step() const { return batch * accumulate; }
  std::int64_t windows() const { return per_step() * steps; }
};

HarArch arch_of(const H5File& file) {
  const auto integer = [&](const char* name) { return file.int_attribute("/", name); };
  HarArch arch;
  arch.input = HarArch::Input::image;
  arch.mode = integer("channels") == 1 ? HarArch::Mode::independent : HarArch::Mode::flatten;
  arch.pool = integer("mean_pool") != 0 ? HarArch::Pool::mean : HarArch::Pool::attention;
  arch.channels = integer("channels"), arch.image = integer("image"), arch.patch = integer("patch");
  arch.dim = integer("dim"), arch.layers = integer("layers"), arch.mlp = integer("mlp");
  arch.heads = integer("heads"), arch.head_width = integer("head_dim");
  arch.pre_norm = file.text_attribute("/", "mlp_norm") == "pre";
  arch.norm_eps = file.real_attribute("/", "ln_eps");
  arch.hidden = file.int_list("/", "hidden_dims");
  arch.classes = integer("classes");
  arch.frozen = integer("frozen") != 0;
  return arch;
}

/// The reference's pictures as patches: step s takes the windows of its micro-batches.
class ReferenceModel final : public ShardModel {
 public:
  ReferenceModel(const H5File& file, DType dtype)
      : net_(arch_of(file), dtype, 0),
        sizes_{file.int_attribute("/", "batch"), file.int_attribute("/", "steps"), file.int_attribute("/", "accum")},
        smoothing_(file.real_attribute("/", "label_smoothing")),
        labels_(file.read<std::int32_t>("/inputs/labels")),
        patches_(dtype, {sizes_.windows() * net_.arch().channels, net_.arch().tokens(), net_.arch().patch_values()}) {
    load_reference_weights(net_.params(), file);
    visit_float(dtype, [&]<class T>() { cut<T>(file.read<T>("/inputs/images")); });
  }
  ParamStore& params() override { return net_.params(); }

  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    const std::int64_t first = shard.step * sizes_.per_step() + shard.first;
    return {cross_entropy(tape, logits(tape, first, shard.count), labels(tape, first, shard.count), smoothing_),
            static_cast<double>(shard.count)};
  }
  /// The logits of the reference's windows [first, first + count).
  Var logits(Tape& tape, std::int64_t first, std::int64_t count, const Observer* watch = nullptr) const {
    const std::int64_t channels = net_.arch().channels;
    const Tensor patches = to_tape(tape, patches_->slice(first * channels, count * channels));
    if (watch == nullptr) return net_.classify(tape, patches, nullptr);
    return net_.classify(tape, net_.embed(tape, patches), nullptr, watch);
  }
  Tensor labels(Tape& tape, std::int64_t first, std::int64_t count) const {
    const Tensor labels = allocate(tape.host_arena(), DType::i32, {count});
    std::copy_n(labels_.data() + first, count, labels.data<std::int32_t>());
    return labels;
  }
  const Har& network() const { return net_; }
  const Sizes& sizes() const { return sizes_; }
  double smoothing() const { return smoothing_; }

 private:
  template <class T>
  void cut(const std::vector<T>& images) {
    const HarArch& arch = net_.arch();
    const std::int64_t side = arch.image / arch.patch;
    T* out = patches_->data<T>();
    for (std::int64_t n = 0; n < patches_->shape()[0]; ++n)
      for (std::int64_t t = 0; t < arch.tokens(); ++t)
        for (std::int64_t c = 0; c < 3; ++c)
          for (std::int64_t i = 0; i < arch.patch; ++i) {
            const std::int64_t y = t / side * arch.patch + i, x = t % side * arch.patch;
            const T* row = images.data() + ((n * 3 + c) * arch.image + y) * arch.image + x;
            out = std::copy_n(row, arch.patch, out);
          }
  }

  Har net_;
  Sizes sizes_;
  double smoothing_;
  std::vector<std::int32_t> labels_;
  OwnedTensor patches_;
};

/// p of all heads, from queries and keys side by side.
std::vector<double> attention_weights(const Tensor& qkv, const HarArch& arch) {
  const std::vector<double> x = doubles(qkv);
  const std::int64_t time = arch.tokens(), width = arch.head_width, columns = arch.heads * width;
  std::vector<double> out, row(static_cast<std::size_t>(time));
  for (std::int64_t n = 0; n < qkv.shape()[0]; ++n)
    for (std::int64_t h = 0; h < arch.heads; ++h)
      for (std::int64_t i = 0; i < time; ++i) {
        const double* q = x.data() + (n * time + i) * 3 * columns + h * width;
        double sum = 0;
        for (std::int64_t j = 0; j < time; ++j) {
          const double* k = x.data() + (n * time + j) * 3 * columns + columns + h * width;
          double product = 0;
          for (std::int64_t c = 0; c < width; ++c) product += q[c] * k[c];
          sum += row[j] = std::exp(product / std::sqrt(static_cast<double>(width)));
        }
        for (const double e : row) out.push_back(e / sum);
      }
  return out;
}

/// The results of classified windows.
struct Result {
  double loss = 0, plain_loss = 0;  ///< means, with and without smoothed labels
  double accuracy = 0;              ///< percent
  std::vector<double> logits, log_probs, predicted;
};
Result classify(const ReferenceModel& model, std::int64_t first, std::int64_t count) {
  OwnTape tape(model.network().params());
  const Var logits = model.logits(tape, first, count);
  const Tensor labels = model.labels(tape, first, count);
  Result r;
  r.logits = doubles(logits.value());
  const auto n = static_cast<double>(count);
  const auto loss = [&](double smoothing) {
    return doubles(cross_entropy(tape, logits, labels, smoothing).value()).front() / n;
  };
  r.loss = loss(model.smoothing());
  r.plain_loss = loss(0);
  const std::int64_t classes = model.network().arch().classes;
  r.log_probs.resize(r.logits.size());
  window_log_probabilities(Tensor::of(r.logits.data(), {count, classes}), classes, 1, r.log_probs);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t best = largest_class(std::span(r.logits).subspan(i * classes, classes));
    r.predicted.push_back(static_cast<double>(best));
    if (best == labels.data<std::int32_t>()[i]) r.accuracy += 100 / n;
  }
  return r;
}

void verify_values(Verifier& v, const ReferenceModel& model) {
  const auto output = v.relative("outputs", kOutput);
  const Observer watch = [&](const std::string& name, const Tensor& value) {
    if (name.ends_with("_qkv"))
      output(name.substr(0, name.rfind('_')) + "_attn", attention_weights(value, model.network().arch()));
    else
      output(name, value);
  };
  OwnTape tape(model.network().params());
  model.logits(tape, 0, model.sizes().batch, &watch);
  const Result r = classify(model, 0, model.sizes().batch);  // on a GPU by other kernels
  output("logits", r.logits);
  output("log_probs", r.log_probs);
  output("loss", r.loss);
  output("loss_no_smoothing", r.plain_loss);
  v.absolute("outputs", "pred", r.predicted, 0);
}

/// Compares the weights after the steps. In single precision, weights with vanishing gradients are omitted, and the
/// part of each difference that rounding of gradients explains is subtracted.
void verify_weights(Verifier& v, const ParamStore& params, const AdamDifference& difference, bool f64) {
  for (auto& [name, values] : by_parameter(params, params.values())) {
    if (!v.has("after_steps", name) || (vanishes(name) && !f64)) continue;
    if (f64) {
      v.absolute("after_steps", name, values, vanishes(name) ? kNothing : kDouble);
      continue;
    }
    const std::vector<double> expected = v.reference("after_steps", name), &allowed = difference.of(name);
    for (std::size_t i = 0; i < std::min(values.size(), expected.size()); ++i)
      values[i] -= std::clamp(values[i] - expected[i], -allowed[i], allowed[i]);
    v.absolute("after_steps", name, values, kWeights, "beyond rounding of gradients");
  }
}

/// Compares the training steps of the micro-batches over all ranks, and the resulting state.
void verify_steps(Verifier& v, World& world, ReferenceModel& model, const VerifyOptions& options) {
  const H5File& file = v.file();
  const Sizes& sizes = model.sizes();
  OptimizerOptions adam{.name = "adamw"};
  const auto betas = file.real_list("/", "adam_betas", 2);
  adam.beta1 = betas[0], adam.beta2 = betas[1], adam.eps = file.real_attribute("/", "adam_eps");
  adam.weight_decay = file.real_attribute("/", "weight_decay");
  const std::vector<FlatRange> ranges = trainable_ranges(model.params());
  const auto optimizer = make_optimizer(adam, model.params(), ranges);
  const double lr = file.real_attribute("/", "lr"), clip = file.real_attribute("/", "clip");
  const auto step = make_sharded_step(world.communicator(), model, options.step);

  const StepSums first = step->run({.count = sizes.batch});
  for (const auto& [name, values] : by_parameter(model.params(), step->gradient(), 1 / first.weight))
    vanishes(name) ? v.absolute("grads", name, values, kNothing) : v.relative("grads", name, values, kGradient);
  v.relative("outputs", "grad_norm", gradient_norm(step->gradient(), ranges) / first.weight, kGradient);

  AdamDifference difference(adam);
  std::vector<double> losses, norms;
  double accuracy = 0;
  const std::int64_t micros = sizes.steps * sizes.accumulate;
  for (std::int64_t s = 0; s < sizes.steps; ++s) {
    for (std::int64_t m = 0; m < sizes.accumulate; ++m) {
      const Result r = classify(model, s * sizes.per_step() + m * sizes.batch, sizes.batch);
      losses.push_back(r.loss);
      accuracy += r.accuracy / static_cast<double>(micros);
    }
    const StepSums sums = step->run({.step = s, .count = sizes.per_step(), .micro = sizes.batch});
    norms.push_back(gradient_norm(step->gradient(), ranges) / sums.weight);
    const double scale = clip_scale(norms.back(), clip) / sums.weight;
    difference.add_step(model.params(), step->gradient(), scale, lr, kRounding);
    optimizer->step(step->gradient(), lr, scale);
  }
  const auto mean = [&](const auto& metric) {
    double sum = 0;
    for (std::int64_t m = 0; m < micros; ++m) sum += metric(m);
    return sum / static_cast<double>(micros);
  };
  const auto log = v.relative("train_log", kOutput);
  log("microbatch_loss", losses);
  v.relative("train_log", "grad_norm_before_clip", norms, kGradient);
  log("mean_loss", mean([&](std::int64_t m) { return losses[m]; }));
  log("mean_accuracy_pct", accuracy);
  const auto after = [&](std::int64_t m) { return classify(model, m * sizes.batch, sizes.batch); };
  v.relative("train_log", "val_loss_after", mean([&](std::int64_t m) { return after(m).loss; }), kLossAfter);
  log("val_accuracy_pct_after", mean([&](std::int64_t m) { return after(m).accuracy; }));
  verify_weights(v, model.params(), difference, options.f64);
}

/// Learning rates by epoch, and when to stop: the same in either precision.
void verify_rules(const H5File& file, ReferenceReport& report) {
  Verifier v(file, {}, report);
  for (const char* name : {"default", "warm3", "warm0"}) {
    const std::string group = std::string("/schedule/") + name;
    if (!file.has(group)) continue;
    ScheduleOptions options{.name = "cosine", .origin = 1};
    options.warmup = file.int_attribute(group, "warmup_epochs"),
    options.total = file.int_attribute(group, "total_epochs");
    options.min_lr = file.real_attribute(group, "min_lr");
    for (const bool late : {false, true}) {
      options.late = late;
      const LrSchedule schedule(options, file.real_attribute(group, "base_lr"));
      std::vector<double> rates;
      for (std::int64_t e = 0; e < options.total; ++e) rates.push_back(schedule.lr(0, e));
      v.relative(group.substr(1), late ? "lr_used_in_epoch_upstream" : "lr_returned_by_step", rates, 1e-12);
    }
  }
  if (!file.has("/early_stopping/scores")) return;
  const double least = file.real_attribute("/early_stopping", "min_delta");
  const std::int64_t patience = file.int_attribute("/early_stopping", "patience");
  TrainState state;
  std::vector<double> flags;
  bool stopped = false;
  for (const double score : file.read<double>("/early_stopping/scores")) {
    note_score(state, score, true, least);
    RunConfig::Stop rules{.patience = patience};
    stopped = stopped || !stop_reason(rules, state).empty();
    flags.push_back(stopped ? 1 : 0);
  }
  v.absolute("early_stopping", "stop_flag", flags, 0);
}

/// Lines drawn pixel by pixel.
void verify_pictures(const H5File& file, ReferenceReport& report) {
  Verifier v(file, {}, report);
  const std::vector<std::int64_t> shape = file.info("/inputs/sequences").shape;
  const std::vector<double> signals = file.read<double>("/inputs/sequences");
  const int size = static_cast<int>(file.int_attribute("/", "image"));
  std::vector<std::uint32_t> mask(line_plot::mask_words(size));
  std::vector<double> pixels, columns;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    line_plot::draw(signals.data() + n * shape[1], shape[1], size, mask.data());
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) pixels.push_back(line_plot::pixel(mask.data(), size, x, y) ? 1 : 0);
  }
  for (std::int64_t i = 0; i < shape[1]; ++i)
    columns.push_back(static_cast<double>(line_plot::x_of(i, shape[1], size)));
  v.absolute("outputs", "mask", pixels, 0);
  v.absolute("outputs", "x_coords", columns, 0);
}

}  // namespace

void verify_har(World& world, const H5File& file, const VerifyOptions& options, ReferenceReport& report) {
  if (file.has("/inputs/sequences")) return verify_pictures(file, report);
  require_data(file.has("/inputs/images") && file.has("/weights"), "verifying '", file.path().string(),
               "': neither pictures with weights nor sequences; this is not a reference file of har");
  Verifier v(file, options, report);
  ReferenceModel model(file, options.f64 ? DType::f64 : DType::f32);
  model.params().move_to(options.device);
  if (is_half(options.storage)) model.params().store_as(options.storage);
  verify_values(v, model);
  verify_steps(v, world, model, options);
  verify_rules(file, report);
}

}  // namespace lockstep
