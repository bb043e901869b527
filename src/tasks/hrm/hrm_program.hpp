#pragma once
#include <memory>
#include <vector>

#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/hrm/hrm_task.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// Trains full batches of slots whose state persists between steps. One optimizer updates the gradient parameters; sign
/// descent updates the puzzle embeddings that a step used.
///
/// A rank always owns the same slots. In each step the ranks gather the slots' identifiers and embedding gradients, so
/// that every rank makes the same update of the table, in slot order. Scores are gathered only for the log, and the
/// states only for checkpoints. If the gradient stays on a GPU, the GPU gathers and updates, and the host only
/// enqueues.
class HrmProgram final : public TrainingProgram {
 public:
  /// errors  usage: a batch that the data do not fill
  HrmProgram(World& world, const RunConfig& config, HrmTask& model, int threads);

  std::int64_t epoch_length() const override { return steps_per_epoch() * per_step_; }
  std::int64_t steps_per_epoch() const override { return model_.sampler().nominal_batches(); }
  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override;
  std::optional<StepOutcome> take_last() override;
  void settle() override;
  std::vector<NamedOptimizer> optimizers() override { return {{"", optimizer_.get()}}; }
  std::vector<NamedTensor> vectors() override;
  void resumed() override;
  std::vector<Metric> interval_metrics() override;
  std::string backend() const override { return step_.backend(); }
  bool sends_buckets() const override { return !config_.run.reproducible; }
  std::vector<std::pair<std::string, std::string>> facts() override;

  /// Gradient of the sum of the last step's losses.
  const FlatGradient& gradient() const { return step_.gradient(); }
  /// The sum of the scores since the last call, over all slots, and the number of sequences in it. Collective.
  std::pair<ops::HaltingScore, double> take_scores();
  /// Gathers the rows of all slots (the outermost axis) on all ranks, each from its owner. Collective.
  void gather(const Tensor& rows, const char* what);

 private:
  /// The position at which the step ends whose batch begins at sample `first` of the epoch.
  std::int64_t end_of(std::int64_t first) const;
  void gather(std::span<std::byte> rows, const char* what);
  void update_puzzle_table(double lr, Ema* average);
  /// The outcome of a step that a GPU has completed.
  std::optional<StepOutcome> outcome(const std::optional<EndedStep>& ended);
  void add_scores(std::int64_t step);

  World& world_;
  const RunConfig& config_;
  HrmTask& model_;
  const std::int64_t batch_;     ///< slots of a micro-batch, over all ranks
  const std::int64_t per_step_;  ///< slots of a step
  const double puzzle_rate_;     ///< learning rate of the puzzle embeddings relative to optim.lr
  std::vector<FlatRange> ranges_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<GpuUpdate> update_;
  Arena scratch_;  ///< of the CPU, for the update of the puzzle table
  ShardedStep step_;
  bool settled_ = true;
  std::int64_t epoch_ = 0;                   ///< of the last step
  std::vector<ops::HaltingScore> interval_;  ///< (slots), sums since the last take_scores()
  std::int64_t interval_steps_ = 0;
};

}  // namespace lockstep
