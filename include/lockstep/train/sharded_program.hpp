#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/step/sharded_step.hpp"
#include "lockstep/train/step_rows.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// Checks the mean loss and the norm of the mean gradient of a step before its update; they are the same on all ranks.
/// Collective if not finite.
///
/// errors  Error (usage) on all ranks if one is not finite: names the step and the first bad parameter
void require_finite(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                    const TrainState& state, double loss, double norm);
/// The same for a program without a flat gradient, also after the update. errors  names step and epoch, then `phase`
void require_finite(World& world, const RunConfig& config, std::int64_t step, std::int64_t epoch, const char* phase,
                    double loss, double norm);

/// Returns `samples`, the size of a batch over all ranks. errors  Error (usage): more than the training split has
std::int64_t checked_batch(const RunConfig& config, int ranks, std::int64_t samples);

/// The training program of a ShardTask. Each step takes a global batch, the next one in the epoch's order, sums the
/// gradients of its shards and runs one optimizer. A program with other batches, or with more to update, overrides the
/// protected functions.
class ShardedProgram : public TrainingProgram {
 public:
  /// errors  Error (usage): a batch larger than the training split
  ShardedProgram(World& world, const RunConfig& config, ShardTask& task, int threads);

  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) final;
  std::optional<StepOutcome> settle(UpTo what) override;
  /// A step that is under way may bring rows up to date too: Optimizer::flush() waits for them.
  bool settle_alone() override;
  ProgramState state() override { return {{{"", optimizer_.get()}}}; }
  ProgramFacts facts() override;
  /// Gradient of the sum of the last step's losses.
  const FlatGradient& gradient() const { return step_->gradient(); }

 protected:
  /// batch  samples of a micro-batch over all ranks
  ShardedProgram(World& world, const RunConfig& config, ShardTask& task, int threads, std::int64_t batch,
                 EpochLength epoch);
  /// The samples of the step at this position. `loss_scale` is set later.
  virtual GlobalBatch batch_at(const TrainState& state);
  /// The position after the step with this batch.
  virtual std::int64_t end_of(const GlobalBatch& batch) const { return batch.first + batch.count; }
  /// Gathers what update_more() needs. Collective.
  virtual void prepare_update() {}
  /// Updates what the optimizer does not, after its update on CPUs.
  virtual void update_more(double /*lr*/, Ema* /*average*/) {}
  /// Called for each step that has updated the weights, on all ranks.
  virtual void updated(std::int64_t /*step*/) {}

  World& world_;
  const RunConfig& config_;
  const std::int64_t batch_;     ///< samples of a micro-batch, over all ranks
  const std::int64_t per_step_;  ///< samples of an optimizer step
  ShardedStep& sharded_step() { return *step_; }
  /// The end of a step whose gradient stays on a GPU, or null.
  GpuUpdate* gpu_update() { return update_ ? &*update_ : nullptr; }
  /// ", in 4 micro-batches of 16" if a step has several, else "".
  std::string micro_batches() const;

 private:
  /// Sets the outcome of the step, and begins the change.
  void update(const TrainState& state, const GlobalBatch& batch, const StepSums& sums, double lr, Ema* average,
              StepResult& result);
  std::optional<StepOutcome> outcome(const std::optional<EndedStep>& ended);

  ShardTask& task_;
  const std::vector<FlatRange> norm_ranges_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<GpuUpdate> update_;
  const std::unique_ptr<ShardedStep> step_;
  StepRows rows_;
  std::int64_t last_epoch_ = 0;  ///< of the last step
  bool logged_ = false;          ///< whether ShardedStep::row_choice() is in the log
};

}  // namespace lockstep
