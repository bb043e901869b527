#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/optim/loss_scale.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// The description of one step for a rank's GPU: everything that changes from step to step, except for the samples. The
/// host writes it to pinned memory, followed by the rank's report; the step first copies both to the GPU.
struct GpuStepRecord {
  std::uint64_t step = 0;     ///< of Philox
  std::int64_t samples = 0;   ///< over all ranks
  std::int64_t known = 1;     ///< whether the host knows the outcome of all earlier steps
  LossScale loss_scale = {};  ///< at the beginning of the step, if `known`
  double lr = 0;
  StepScalars after_skip = {};  ///< of the optimizer: used if `known`, or if the previous step was skipped
  StepScalars after_step = {};  ///< of the optimizer: used otherwise
};

/// The scalars that one rank contributes to a step. The GPU sums the reports of all ranks.
///
/// layout  doubles: weight, flags; then 8 bytes for each micro-batch: its loss, in the dtype of the gradient
struct RankReport {
  double weight = 0, flags = 0;
  static std::size_t size_bytes(std::int64_t micros) {
    return sizeof(RankReport) + static_cast<std::size_t>(micros) * sizeof(double);
  }
  static std::size_t loss_at(std::int64_t micro) { return size_bytes(micro); }
};

/// The reports of all ranks, one after the other, in GPU memory.
struct RankReports {
  const std::byte* bytes = nullptr;
  std::int64_t ranks = 1, micros = 1;
  bool doubles = false;  ///< losses are f64, whatever the gradient is
};

/// Sign descent (sign_sgd_rows) on a table outside the optimizer, from one gradient row per sample of the step. Each
/// rank computes the rows of its samples; with NCCL the same arrays gather the rows of the other ranks.
struct RowDescent {
  const Param* table = nullptr;
  Tensor ids;        ///< i32 (samples over all ranks)
  Tensor gradients;  ///< (samples, columns)
  double rate = 1;   ///< factor of the learning rate
  double weight_decay = 0;
};

/// A GPU's report about one step to the host, in pinned memory; the same on all ranks.
struct GpuOutcome {
  double loss = 0, weight = 0;    ///< summed over ranks; the loss with the penalty
  double norm = 0;                ///< of the mean gradient; 0 without an optimizer
  std::int64_t flags = 0;         ///< of any rank
  std::int64_t skipped = 0;       ///< the gradient overflowed in fp16, and nothing was updated
  std::int64_t failed = 0;        ///< loss or norm are not finite; neither this step nor later ones update anything
  std::int64_t bad_element = -1;  ///< if failed: the first element of the gradient that is not finite, -1 if none
  double bad_value = 0;
};

/// The end of a step on a GPU, without the host: the sums over ranks, the gradient of the penalty, the norm, clipping,
/// the check for values that are not finite, the optimizer with the average of the weights, and the loss scale of fp16.
/// Kernels read all values that depend on the step from a GpuStepRecord, so a graph that contains them can be repeated.
/// The bits are those of add_penalty(), GradientNorm, clip_scale() and Optimizer::step() on the same GPU.
class GpuUpdate {
 public:
  struct Options {
    double clip_norm = 0;  ///< 0: off
    bool lazy = false;     ///< add_penalty()
    bool scaled = false;   ///< the loss is scaled by LossScale, and a step that is not finite is skipped
  };
  /// `optimizer` may be null: then only the reports are summed. The references must stay valid.
  GpuUpdate(ParamStore& params, Optimizer* optimizer, std::vector<FlatRange> norm_ranges, const Options& options);

  bool scaled() const { return options_.scaled; }
  /// Adds sign descent on a table to each step. Call it before the first step.
  void descend(const RowDescent& rows) { rows_ = rows; }
  const std::optional<RowDescent>& rows() const { return rows_; }
  /// Completes the record of the next step. `open_steps` (0 or 1) counts the earlier steps whose outcome the host does
  /// not know.
  void describe(GpuStepRecord& record, double lr, const LossScale& scale, int open_steps) const;
  /// Tells the optimizer about a step that has ended. errors  Error (usage) if it failed
  void count(const GpuOutcome& outcome) const;

  /// Enqueues the factor of the loss: seed(), a scalar in the dtype of the gradient. Only if scaled(); otherwise it is
  /// 1.
  void open(const Stream& stream, const GpuStepRecord* record) const;
  const Tensor& seed() const { return seed_.view(); }
  /// Enqueues the decision about the step: its outcome, and the scalars of its update, which are at now() when it runs.
  /// `record` is in GPU memory, `outcome` in pinned memory. Changes the gradient of penalised parameters.
  void decide(const Stream& stream, const Tensor& gradient, const RankReports& reports, const GpuStepRecord* record,
              GpuOutcome* outcome) const;
  const void* now() const { return now_.data(); }
  /// Enqueues the rest of a step, after the reduction of its gradient: decide() and the updates.
  void close(const Stream& stream, const Tensor& gradient, const RankReports& reports, const GpuStepRecord* record,
             GpuOutcome* outcome, Ema* average) const;
  /// For a kernel that contains the end of a step (DenseStep).
  struct Operands {
    Optimizer* optimizer;  ///< may be null
    std::vector<FlatRange> norm_ranges;
    double clip_norm;
    std::byte* state;  ///< optim_kernels::UpdateState, in GPU memory
  };
  Operands operands() const { return {optimizer_, norm_ranges_, options_.clip_norm, state_.data()}; }

 private:
  ParamStore& params_;
  Optimizer* optimizer_;
  std::vector<FlatRange> norm_ranges_;
  Options options_;
  std::optional<RowDescent> rows_;
  OwnedTensor seed_;
  Buffer parts_;      ///< optim_kernels::PartialSums of each range and each penalised parameter
  Buffer penalties_;  ///< the penalised parameters
  std::int64_t penalised_ = 0, penalty_sums_ = 0;
  Buffer sums_;   ///< partial sums of squares
  Buffer state_;  ///< the state that a step leaves for the next one
  Buffer now_;    ///< the scalars of the optimizer
};

}  // namespace lockstep
