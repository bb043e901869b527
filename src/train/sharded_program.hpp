#pragma once
#include <memory>
#include <vector>

#include "lockstep/train/sharded_step.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// errors  Error (usage) on all ranks, which hold the same sums, when the mean loss or the norm of its gradient is not
///         finite: names the step and the first bad parameter
void require_finite(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                    const TrainState& state, double loss, double norm);

/// What a step's sum of losses is multiplied by: 1 but for fp16.
double loss_scale(const RunConfig& config, const TrainState& state, std::int64_t samples);
/// Whether a step's update is to be left out because its gradient has overflowed under fp16's loss scale; then the result says
/// so. errors  as require_finite()
bool overflowed(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                const TrainState& state, StepResult& result);

/// Samples in the epoch's order, a global batch per step: the gradient of its shards, and one optimizer.
class ShardedProgram final : public TrainingProgram {
 public:
  /// errors  Error (usage): a batch larger than the training split
  ShardedProgram(World& world, const RunConfig& config, Model& model, int threads);

  std::int64_t epoch_length() const override { return samples_; }
  std::int64_t steps_per_epoch() const override { return (samples_ + per_step_ - 1) / per_step_; }
  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override;
  std::vector<NamedOptimizer> optimizers() override { return {{"", optimizer_.get()}}; }
  std::string backend() const override { return step_.backend(); }
  bool sends_buckets() const override { return !config_.run.reproducible; }
  std::vector<std::pair<std::string, std::string>> facts() override;

 private:
  GlobalBatch batch_at(const TrainState& state, std::int64_t epoch, std::int64_t step, std::int64_t position) const;
  GlobalBatch batch_after(const TrainState& state, const GlobalBatch& batch) const;

  World& world_;
  const RunConfig& config_;
  Model& model_;
  const std::int64_t samples_;   ///< of the training split
  const std::int64_t batch_;     ///< samples of a micro-batch, over all ranks
  const std::int64_t per_step_;  ///< samples of an optimizer step
  std::vector<FlatRange> ranges_;
  const bool penalised_;  ///< some parameter has an l2
  std::unique_ptr<Optimizer> optimizer_;
  ShardedStep step_;
  bool told_ = false;  ///< how tables are exchanged
};

}  // namespace lockstep
