#pragma once
#include <vector>

#include "lockstep/tasks/hrm/hrm_task.hpp"
#include "lockstep/train/sharded_program.hpp"

namespace lockstep {

/// Trains full batches of slots whose state persists between steps. One optimizer updates the gradient parameters; sign
/// descent updates the puzzle embeddings that a step used.
///
/// A rank always owns the same slots. In each step the ranks gather the slots' identifiers and embedding gradients, so
/// that every rank makes the same update of the table, in slot order. Scores are gathered only for the log, and the
/// states only for checkpoints. If the gradient stays on a GPU, the GPU gathers and updates, and the host only
/// enqueues.
class HrmProgram final : public ShardedProgram {
 public:
  /// errors  usage: a batch that the data do not fill
  HrmProgram(World& world, const RunConfig& config, HrmTask& model, int threads);

  std::optional<StepOutcome> settle(UpTo what) override;
  bool settle_alone() override { return false; }  // the other slots belong to other ranks
  ProgramState state() override;
  void resumed() override;
  std::vector<Metric> interval_metrics() override;
  ProgramFacts facts() override;

  /// The sum of the scores since the last call, over all slots, and the number of sequences in it. Collective.
  std::pair<ops::HaltingScore, double> take_scores();
  /// Gathers the rows of all slots (the outermost axis) on all ranks, each from its owner. Collective.
  void gather(const Tensor& rows, const char* what);

 private:
  GlobalBatch batch_at(const TrainState& state) override;
  std::int64_t end_of(const GlobalBatch& batch) const override;
  void prepare_update() override;
  void update_more(double lr, Ema* average) override;
  void updated(std::int64_t step) override;
  void gather(std::span<std::byte> rows, const char* what);
  std::vector<NamedTensor> carried() const;

  HrmTask& model_;
  const double puzzle_rate_;  ///< learning rate of the puzzle embeddings relative to optim.lr
  Arena scratch_;             ///< of the CPU, for the update of the puzzle table
  bool settled_ = true;
  std::vector<ops::HaltingScore> interval_;  ///< (slots), sums since the last take_scores()
  std::int64_t interval_steps_ = 0;
};

}  // namespace lockstep
