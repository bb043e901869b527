#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpoint/train_state.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

/// The outcome of an optimizer step, the same on all ranks.
struct StepOutcome {
  std::int64_t step = 0;        ///< TrainState::step before this step
  double loss = 0, weight = 0;  ///< sum over samples, divisor of the mean; 0: not part of the epoch's mean
  double norm = 0;              ///< L2 norm of the mean gradient before clipping
  bool scaled = false;          ///< fp16: the loss was multiplied by TrainState::loss_scale
  bool skipped = false;         ///< fp16: the gradient overflowed, nothing was updated, loss and weight are 0
  unsigned flags = 0;           ///< StepFlag of any rank
};

/// The result of TrainingProgram::step(), the same on all ranks except for the seconds.
struct StepResult {
  std::int64_t advance = 0;  ///< positions of the epoch that the step covers
  std::int64_t samples = 0;  ///< over all ranks, for the throughput
  /// The outcome of this step; or, if a GPU is still computing it, of the previous step unless already returned.
  std::optional<StepOutcome> outcome = {};
  std::string row_decisions = {};                  ///< for TrainState
  double compute = 0, reduce = 0, update = 0;      ///< wall seconds of this rank
  std::unique_lock<std::timed_mutex> change = {};  ///< World::change() since the begin of the update, or none
};

/// What TrainingProgram::settle() brings up to date on this rank: the outcomes of steps; also the weights and
/// state().vectors, of which a program may defer updates, or store a part on other ranks; also the optimizers.
enum class UpTo : std::uint8_t { outcomes, weights, optimizers };

/// The length of an epoch.
struct EpochLength {
  std::int64_t positions = 0;  ///< the value of TrainState::position at its end
  std::int64_t steps = 0;
};

/// What a checkpoint stores of a program besides the weights: optimizers in /optim/<name>, other vectors in /program.
struct ProgramState {
  std::vector<NamedOptimizer> optimizers;
  std::vector<NamedTensor> vectors = {};
};

/// What a program says of itself.
struct ProgramFacts {
  std::string backend;         ///< the library that reduces gradients over ranks
  bool sends_buckets = false;  ///< the gradient is sent in the buckets of gradient_messages() during the backward pass
  std::int64_t least_shard = 1;                                 ///< ShardModel::least_shard()
  std::int64_t shards = 0;                                      ///< of a batch; 0: RunConfig::shards()
  std::vector<std::pair<std::string, std::string>> lines = {};  ///< of the banner: batches, and its own decisions
};

/// The steps of a run's epochs. The trainer knows neither batches nor gradients. Most tasks use ShardedProgram, or
/// derive from it; a task that alternates losses, or splits one large problem over the ranks, has its own program.
class TrainingProgram {
 public:
  virtual ~TrainingProgram() = default;
  const EpochLength& epoch() const { return epoch_; }

  /// Runs the step at (state.step, state.epoch, state.position): forward and backward pass, reduction over ranks,
  /// clipping, update. Random numbers depend only on this position and the seed. Collective.
  ///
  /// flags    StepFlags of this rank; the result has the union over ranks
  /// average  updated with the weights, unless null
  /// errors   Error (usage) on all ranks if the loss is not finite: names the step
  virtual StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) = 0;
  /// Brings so much up to date, before an evaluation or a checkpoint. Waits for the step whose outcome step() has not
  /// returned yet, and returns it. What other ranks store of the optimizers stays on this rank until the next step.
  /// Collective. errors  as step()
  virtual std::optional<StepOutcome> settle(UpTo /*what*/) { return {}; }
  /// Called after the last step of each epoch, before an evaluation. May add values to the epoch's record. A run that
  /// is stopped during the evaluation calls it again when it continues. Collective.
  virtual void end_epoch(const TrainState&, std::vector<std::pair<std::string, double>>& /*record*/) {}
  /// Metrics of the steps since the last call, for the log; the same on all ranks.
  virtual std::vector<Metric> interval_metrics() { return {}; }

  /// As settle(UpTo::optimizers), for a state that is saved when a rank was lost: without collectives, from any thread,
  /// under World::change(). Returns false if the state of this rank is not whole without other ranks, or if step()
  /// changes it without StepResult::change. Such a program is saved as of the last copy that the trainer has taken.
  virtual bool settle_alone() { return false; }
  virtual ProgramState state() = 0;
  /// Called on all ranks after a checkpoint has been loaded into weights, optimizers and vectors.
  virtual void resumed() {}
  /// Collective.
  virtual ProgramFacts facts() = 0;

 protected:
  explicit TrainingProgram(EpochLength epoch) : epoch_(epoch) {}
  EpochLength epoch_;
};

}  // namespace lockstep
