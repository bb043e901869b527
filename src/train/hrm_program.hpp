#pragma once
#include <memory>
#include <vector>

#include "lockstep/models/hrm_model.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// Full batches of slots whose state lives on from step to step; one optimizer for the gradient parameters, sign
/// descent for the puzzle embeddings of the rows that a step used.
///
/// A rank always owns the same slots. After each step the slots' identifiers, embedding gradients and scores are
/// gathered, so that every rank makes the same update of the table, in the order of slots; the states are gathered for
/// checkpoints alone. While a GPU works on a step the host prepares the next one.
class HrmProgram final : public TrainingProgram {
 public:
  /// errors  Error (usage): a batch that the data do not fill
  HrmProgram(World& world, const RunConfig& config, HrmModel& model, int threads);

  std::int64_t epoch_length() const override { return steps_per_epoch() * per_step_; }
  std::int64_t steps_per_epoch() const override { return model_.sampler().nominal_batches(); }
  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override;
  void settle() override;
  std::vector<NamedOptimizer> optimizers() override { return {{"", optimizer_.get()}}; }
  std::vector<NamedTensor> vectors() override;
  void resumed() override;
  std::vector<Metric> interval_figures() override;
  std::string backend() const override { return step_.backend(); }
  bool sends_buckets() const override { return !config_.run.reproducible; }
  std::vector<std::pair<std::string, std::string>> facts() override;

  /// Of the sum of the last step's losses.
  const Tensor& gradient() const { return step_.gradient(); }
  /// Brings the rows of all slots (the outermost axis) to all ranks, each from its owner. Collective.
  void gather(const Tensor& rows, const char* what);

 private:
  /// Begins the epoch. `position` is one that a step of it begins at.
  GlobalBatch batch_at(const TrainState& state, std::int64_t epoch, std::int64_t step, std::int64_t position);
  /// Where the step that begins at `first` of an epoch ends.
  std::int64_t end_of(std::int64_t first) const;
  void gather(std::span<std::byte> rows, const char* what);
  void update_puzzle_table(double lr, Ema* average);

  World& world_;
  const RunConfig& config_;
  HrmModel& model_;
  const std::int64_t batch_;     ///< slots of a micro-batch, over all ranks
  const std::int64_t per_step_;  ///< slots
  const double puzzle_rate_;     ///< of the puzzle embeddings, as a part of the others'
  std::vector<FlatRange> ranges_;
  std::unique_ptr<Optimizer> optimizer_;
  ShardedStep step_;
  Arena scratch_;  ///< of the puzzle table's update
  bool settled_ = true;
  ops::HaltingScore interval_;
  double interval_sequences_ = 0;
  std::vector<std::byte> own_rows_;
};

}  // namespace lockstep
