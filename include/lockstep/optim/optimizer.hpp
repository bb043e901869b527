#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/optim/flat_gradient.hpp"
#include "lockstep/optim/flat_range.hpp"

namespace lockstep {

/// Ranges of the trainable parameters that `select` accepts, in order, with neighbours merged. Gaps between parameters
/// have zero values and gradients and stay zero under every optimizer, so a range may include gaps.
std::vector<FlatRange> trainable_ranges(const ParamStore& params, const std::function<bool(const Param&)>& select = {});

/// A named tensor that a checkpoint stores and restores. Does not own the memory.
struct NamedTensor {
  std::string name;
  Tensor value;
};

/// Exponential moving average of the weights: shadow <- d * shadow + (1 - d) * p after every step. It starts as a copy
/// of the weights.
class Ema {
 public:
  /// errors   Error (usage) unless 0 <= decay < 1
  Ema(const ParamStore& params, double decay);
  double decay() const { return decay_; }
  /// Updates elements [begin, end) on the CPU. Threads may update disjoint elements concurrently.
  void update(const Tensor& values, std::int64_t begin, std::int64_t end);
  /// Swaps the weights and their average: swap, evaluate with the average, swap back.
  void exchange(ParamStore& params);
  /// Whether the weights and their average are swapped now.
  bool exchanged() const { return exchanged_; }
  /// One tensor per parameter, under the parameter's name.
  std::vector<NamedTensor> state() const { return views_; }
  /// The whole average, in the layout of ParamStore::values().
  const Tensor& flat() const { return shadow_.view(); }
  std::uint64_t hash() const;

 private:
  double decay_;
  bool exchanged_ = false;
  OwnedTensor shadow_;
  std::vector<NamedTensor> views_;
};

/// Puts the averaged weights into the store for the life of the object. Does nothing if `ema` is null. After a fault of
/// a GPU the destructor cannot put the weights back; it throws unless the error of the fault is under way.
class WithAverage {
 public:
  WithAverage(Ema* ema, ParamStore& params) : ema_(ema), params_(params) {
    if (ema_ != nullptr) ema_->exchange(params_);
  }
  WithAverage(const WithAverage&) = delete;
  WithAverage& operator=(const WithAverage&) = delete;
  ~WithAverage() noexcept(false) {  // NOLINT: it throws on purpose
    if (ema_ == nullptr) return;
    try {
      ema_->exchange(params_);
    } catch (const Error&) {
      if (std::uncaught_exceptions() == 0) throw;
    }
  }

 private:
  Ema* ema_;
  ParamStore& params_;
};

struct OptimizerOptions {
  std::string name = "adam";  ///< adam | adamw | adam_atan2 | sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;             ///< adam and sgd: added to the gradient; adamw and adam_atan2: decoupled
  double momentum = 0.9;               ///< sgd
  std::string atan2_bias = "package";  ///< adam_atan2: place of the first moment's bias correction: package | paper
  bool lazy = false;                   ///< rows of row-sparse parameters with a zero gradient keep weights and state
};

/// What a step does with rows of row-sparse parameters that have no gradient: it updates them as all others, it keeps
/// their weights and state, or it updates them when they are next read.
enum class SparseRows : std::uint8_t { update, keep, defer };

/// The scalars of an optimizer's update in one step. Each optimizer defines their order.
using StepScalars = std::array<double, 10>;

/// Updates ranges of a ParamStore's flat vector from their gradients. Several optimizers may share one store.
///
/// A step is one elementwise sweep over the vectors, in chunks and without contraction to FMA, so the bits depend on
/// neither the number of threads nor the instruction set. On the CPU, chunks fit the cache; on a GPU, one launch
/// updates all chunks, with the same bits except for the arc tangent in f64. State lies on the device of the
/// parameters.
///
/// dtypes   f32 | f64, as the parameters
class Optimizer {
 public:
  Optimizer(ParamStore& params, std::vector<FlatRange> ranges, SparseRows sparse = SparseRows::update);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual const char* name() const = 0;
  /// Performs one update with the gradient `gradient_scale` * gradient, and updates `ema` unless it is null. On the
  /// CPU, SparseRows applies to the rows that gradient.nonzero leaves out; all rows are averaged.
  ///
  /// shapes   gradient (flat_size of the store)
  /// dtypes   gradient as the parameters
  void step(const FlatGradient& gradient, double lr, double gradient_scale = 1, Ema* ema = nullptr);
  /// Applies the updates of rows that earlier steps have deferred, before anything but an operation of a tape reads the
  /// parameters, or anything reads state(). Another thread may call it between two steps, also while a tape reads
  /// rows.
  virtual void flush() {}
  /// The scalars of step t = 1, 2, ... for a gradient scale of 1. The first is the gradient scale itself.
  /// errors   Error if this optimizer cannot take its steps on a GPU alone
  virtual StepScalars scalars(double lr, std::int64_t t) const;
  /// Enqueues one update on a GPU with the scalars that are at `now` (optim_kernels::UpdateNow) when it runs, or none
  /// if they say so. Does not count the step.
  void enqueue_step(const Tensor& gradient, const void* now, Ema* ema);
  /// The moments of Adam or AdamW in the layout of the flat vectors, for a kernel that contains the update. Empty for
  /// other optimizers, and if some parameters are not updated, or updated by rows.
  virtual std::array<Tensor, 2> adam_moments() const { return {}; }

  /// Restricts step() to the elements in these ranges; all others keep weights, state and average. For optimizers on
  /// the CPU that are not lazy.
  void update_only(const std::vector<FlatRange>& own);

  /// Number of steps so far. Checkpoints store it.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// The state that a checkpoint stores besides the step count: "exp_avg/<parameter>", "exp_avg_sq/<parameter>",
  /// "momentum_buffer/<parameter>".
  const std::vector<NamedTensor>& state() const { return state_; }
  /// Bytes of optimizer state per trainable element.
  static std::int64_t state_bytes(const OptimizerOptions& options, DType dtype);

 protected:
  /// Adds a state vector over the ranges, initially zero, stored under slot + "/<parameter>".
  Tensor add_state(const std::string& slot);
  /// Computes the scalars of the step, before any chunk. steps() already includes this step.
  virtual void begin(double lr, double gradient_scale) = 0;
  /// Updates one chunk on the CPU. The caller skips rows with a zero gradient.
  virtual void update(const FlatChunk& chunk, const Tensor& values, const Tensor& gradient) = 0;
  /// Updates all chunks on a GPU.
  virtual void update(const GpuSweep& sweep) = 0;
  ParamStore& params() { return params_; }
  DType dtype() const { return params_.dtype(); }
  Device device() const { return params_.device(); }
  /// Whether the state has the layout of the flat vectors.
  bool is_flat() const;

 private:
  GpuSweep sweep(const Tensor& gradient, const void* now, Ema* ema) const;
  void add_chunks(std::int64_t begin, std::int64_t end, std::int64_t row);
  void update_rows(const FlatChunk& chunk, const Tensor& values, const FlatGradient& gradient);

  ParamStore& params_;
  std::vector<FlatRange> ranges_;
  SparseRows sparse_;
  std::vector<FlatChunk> chunks_;
  Buffer gpu_chunks_;  ///< chunks_ in GPU memory
  std::int64_t state_size_ = 0;
  std::vector<OwnedTensor> storage_;
  std::vector<NamedTensor> state_;
  std::int64_t steps_ = 0;
};

/// Creates an optimizer by name. With t = 1, 2, ... and the scaled gradient g:
///
///   adam   g += wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
///          p -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps)
///   adamw  p -= lr wd p;  then as adam without wd
///   adam_atan2  p -= lr wd p;  m, v as adam without wd;  d = sqrt(v)/sqrt(1-b2^t), atan2(0, 0) = 0
///          package: p -= lr/(1-b1^t) atan2(m, d);   paper: p -= lr atan2(m/(1-b1^t), d)
///   sgd    g += wd p;  buf = g at t = 1, else momentum buf + g;  p -= lr buf   (momentum 0: no buffer, p -= lr g)
///
/// errors   Error (usage) for an unknown name
/// source   Kingma, Ba 2015, arXiv:1412.6980, algorithm 1; Loshchilov, Hutter 2019, arXiv:1711.05101; Everett et al.
///          2024, arXiv:2407.05872 (atan2; the form `package` is that of adam-atan2 0.0.3); Polyak 1964
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, ParamStore& params,
                                          std::vector<FlatRange> ranges);

/// Returns the L2 penalty of the loss, the sum over parameters of l2 * |p|^2, and adds `weight` times its derivative to
/// the gradient. Call it on every rank after the gradients are summed over ranks; `weight` is the sum of weights in the
/// summed loss.
///
/// With `lazy`, zero gradients of rows of row-sparse parameters stay zero, but the rows count in the penalty. On the
/// CPU, only elements of the gradient in `within` change.
double add_penalty(const ParamStore& params, const FlatGradient& gradient, double weight, bool lazy = false,
                   FlatRange within = {0, std::numeric_limits<std::int64_t>::max()});

/// The L2 norm of the gradient over ranges, accumulated in f64 in an order that depends only on the ranges: elements
/// left out by gradient.nonzero change no bit. NaN or infinite if the gradient is.
///
/// On a GPU the constructor enqueues the computation on the main stream and value() waits for it; on the CPU value()
/// computes the norm. A thread may use one object at a time. Both arguments must outlive the object.
class GradientNorm {
 public:
  GradientNorm(const FlatGradient& gradient, const std::vector<FlatRange>& ranges);
  double value();

 private:
  FlatGradient gradient_;
  const std::vector<FlatRange>& ranges_;
};
double gradient_norm(const FlatGradient& gradient, const std::vector<FlatRange>& ranges);
/// On the CPU: the sums of squares of the chunks of each range, in order. The norm is the root of their sum, added in
/// this order.
std::vector<double> chunk_squares(const FlatGradient& gradient, const std::vector<FlatRange>& ranges);
/// The factor that clips a gradient's norm to max_norm: min(1, max_norm / (norm + 1e-6)), or 1 if max_norm is 0 (off).
double clip_scale(double norm, double max_norm);
/// Describes the first element of `flat` (values or gradients) that is not finite, "network.2.weight[17] = nan".
/// Returns "" if all are finite.
std::string first_non_finite(const ParamStore& params, const Tensor& flat);
/// The same text for the element at index `at` of the flat vectors.
std::string element_text(const ParamStore& params, std::int64_t at, double value);

}  // namespace lockstep
