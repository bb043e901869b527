#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/optim/pieces.hpp"

namespace lockstep {

/// Where the trainable parameters that `select` accepts lie, in order, neighbours merged. The gaps between parameters
/// are zero in values and gradients alike and stay zero under every optimizer, so that they may be part of a range.
std::vector<FlatRange> trainable_ranges(const ParamStore& params, const std::function<bool(const Param&)>& select = {});

/// A named view of memory that somebody else owns: what a checkpoint writes and reads back.
struct NamedTensor {
  std::string name;
  Tensor value;
};

/// Exponential moving average of the weights: shadow <- d * shadow + (1 - d) * p after every step; it starts as the
/// weights.
class Ema {
 public:
  /// errors  Error (usage) unless 0 <= decay < 1
  Ema(const ParamStore& params, double decay);
  double decay() const { return decay_; }
  /// Elements [begin, end) take one step, on the CPU. Different elements may be updated by different threads.
  void update(const Tensor& values, std::int64_t begin, std::int64_t end);
  /// Exchanges the weights and their average: evaluate with the average, then exchange back.
  void exchange(ParamStore& params);
  /// One tensor per parameter, under the parameter's name.
  std::vector<NamedTensor> state() const { return views_; }
  /// All of it, laid out like the weights.
  const Tensor& flat() const { return shadow_.view(); }
  std::uint64_t hash() const;

 private:
  double decay_;
  OwnedTensor shadow_;
  std::vector<NamedTensor> views_;
};

/// Evaluates with the averaged weights while it lives; a null average changes nothing.
class WithAverage {
 public:
  WithAverage(Ema* ema, ParamStore& params) : ema_(ema), params_(params) {
    if (ema_ != nullptr) ema_->exchange(params_);
  }
  WithAverage(const WithAverage&) = delete;
  WithAverage& operator=(const WithAverage&) = delete;
  ~WithAverage() {
    if (ema_ != nullptr) ema_->exchange(params_);
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
  std::string atan2_bias = "package";  ///< adam_atan2: where the first moment is corrected: package | paper
  bool lazy = false;  ///< rows of row-sparse parameters whose gradient is zero keep their weights and state
};

/// Gradients in, parameters out, for some ranges of a ParamStore's flat vector (several optimizers may share one
/// store).
///
/// A step is one sweep over the vectors in pieces, elementwise and without contraction, so that its bits depend on
/// neither the threads nor the processor's instruction set: on the CPU in pieces that stay in the cache, on a GPU all
/// pieces in one launch, with the same bits but for the arc tangent in f64. State lies where the parameters do.
/// dtypes f32 | f64, as the parameters.
class Optimizer {
 public:
  Optimizer(ParamStore& params, std::vector<FlatRange> ranges, bool lazy = false);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual const char* name() const = 0;
  /// One update with the gradient `gradient_scale` * gradient.
  ///
  /// shapes  gradient (flat_size of the store), of the parameters' dtype
  void step(const Tensor& gradient, double lr, double gradient_scale = 1, Ema* ema = nullptr);

  /// Steps taken so far, kept in checkpoints.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// What must be saved beside the step count: "exp_avg/<parameter>", "exp_avg_sq/<parameter>",
  /// "momentum_buffer/<parameter>".
  const std::vector<NamedTensor>& state() const { return state_; }
  /// Bytes of state that an optimizer of this name keeps per trainable element.
  static std::int64_t state_bytes(const OptimizerOptions& options, DType dtype);

 protected:
  /// A state vector over the ranges, zero at first, saved under slot + "/<parameter>".
  Tensor add_state(const std::string& slot);
  /// Scalars of the step under way, before any piece. steps() already counts this step, from 1.
  virtual void begin(double lr, double gradient_scale) = 0;
  /// Elements of one piece, on the CPU; rows without gradient have been left out.
  virtual void update(const FlatPiece& piece, const Tensor& values, const Tensor& gradient) = 0;
  /// All pieces, on a GPU.
  virtual void update(const GpuSweep& sweep) = 0;
  DType dtype() const { return params_.dtype(); }
  Device device() const { return params_.device(); }

 private:
  void add_pieces(std::int64_t begin, std::int64_t end, std::int64_t row);
  void update_rows(const FlatPiece& piece, const Tensor& values, const Tensor& gradient);

  ParamStore& params_;
  std::vector<FlatRange> ranges_;
  std::vector<FlatPiece> pieces_;
  Buffer gpu_pieces_;  ///< the same, where a GPU reads them
  std::int64_t state_size_ = 0;
  std::vector<OwnedTensor> storage_;
  std::vector<NamedTensor> state_;
  std::int64_t steps_ = 0;
};

/// t = 1, 2, ...; g is the scaled gradient.
///
///   adam   g += wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
///          p -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps)
///   adamw  p -= lr wd p;  then as adam without wd
///   adam_atan2  p -= lr wd p;  m, v as adam without wd;  d = sqrt(v)/sqrt(1-b2^t), atan2(0, 0) = 0
///          package: p -= lr/(1-b1^t) atan2(m, d);   paper: p -= lr atan2(m/(1-b1^t), d)
///   sgd    g += wd p;  buf = g at t = 1, else momentum buf + g;  p -= lr buf   (momentum 0: no buffer, p -= lr g)
///
/// errors  Error (usage) for an unknown name
/// source  Kingma, Ba 2015, arXiv:1412.6980, algorithm 1; Loshchilov, Hutter 2019, arXiv:1711.05101; Everett et al.
///         2024, arXiv:2407.05872 (atan2; the package adam-atan2 0.0.3 differs as said); Polyak 1964
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, ParamStore& params,
                                          std::vector<FlatRange> ranges);

/// The penalty of the loss: the sum over parameters of l2 * |p|^2. Adds `weight` times its derivative to the gradient of a
/// sum of losses with that sum of weights, on every rank alike, after the gradients have been summed.
///
/// With `lazy`, rows of row-sparse parameters whose gradient is zero keep it, and count in the penalty all the same.
double add_penalty(const ParamStore& params, const Tensor& gradient, double weight, bool lazy = false);

/// The L2 norm of the gradient over these ranges, accumulated in double in an order that depends on nothing but the
/// ranges; NaN or infinite when the gradient is.
///
/// On a GPU it is computed in the order of the main stream, of the gradient as it is there when the object is made, and
/// value() waits for it; on the CPU by value(). One at a time in a thread. Both arguments must outlive it.
class GradientNorm {
 public:
  GradientNorm(const Tensor& gradient, const std::vector<FlatRange>& ranges);
  double value();

 private:
  Tensor gradient_;
  const std::vector<FlatRange>& ranges_;
};
double gradient_norm(const Tensor& gradient, const std::vector<FlatRange>& ranges);
/// What to multiply the gradient with so that its norm is at most max_norm: min(1, max_norm / (norm + 1e-6)); 1 when
/// max_norm is 0 (off).
double clip_scale(double norm, double max_norm);
/// "network.2.weight[17] = nan": the first parameter with a value (values) or gradient that is not finite, or "" when
/// all are.
std::string first_non_finite(const ParamStore& params, const Tensor& flat);

}  // namespace lockstep
