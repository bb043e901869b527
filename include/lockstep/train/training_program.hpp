#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/train_state.hpp"

namespace lockstep {

/// What one optimizer step did: the same numbers on all ranks, but for the seconds.
struct StepResult {
  std::int64_t advance = 0;     ///< positions of the epoch that it took
  std::int64_t samples = 0;     ///< over all ranks, for the rate
  double loss = 0, weight = 0;  ///< sum over the samples and what their mean divides by; weight 0: no part of the mean
  double norm = 0;              ///< of the mean gradient
  bool scaled = false;          ///< fp16: the loss was multiplied by TrainState::loss_scale
  bool skipped = false;         ///< that made its gradient infinite: nothing was updated, and its loss does not count
  unsigned flags = 0;           ///< StepFlag of any rank
  double compute = 0, reduce = 0, update = 0;  ///< wall seconds of this rank
};

/// What a run's epochs are made of: the trainer asks for one step after another and knows neither batches nor
/// gradients. Most models train by ShardedProgram; one that alternates losses, or splits a single large problem over
/// the ranks, brings its own.
class TrainingProgram {
 public:
  virtual ~TrainingProgram() = default;

  /// What TrainState::position counts up to within an epoch, and in how many steps.
  virtual std::int64_t epoch_length() const = 0;
  virtual std::int64_t steps_per_epoch() const = 0;

  /// The step at (state.step, state.epoch, state.position). Nothing random may depend on anything else. Collective.
  ///
  /// flags    StepFlag wishes of this rank; the result has those of all
  /// average  updated with the weights, unless null
  /// errors   Error (usage) on all ranks when the loss is not finite, naming the step
  virtual StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) = 0;
  /// Once after the last step of each epoch, before any evaluation; may add figures to the epoch's record. Collective.
  virtual void end_epoch(const TrainState&, std::vector<std::pair<std::string, double>>& /*record*/) {}
  /// Figures of the steps since the last call, for the log's records; the same on all ranks.
  virtual std::vector<Metric> interval_figures() { return {}; }
  /// From here until the next step, weights and optimizers' vectors on this rank are what they ought to be, for
  /// evaluation and checkpoints: a program that postpones updates or keeps parts of them on other ranks catches up.
  /// Collective.
  virtual void settle() {}

  /// What checkpoints keep beside the weights: optimizers under /optim/<name>, other vectors under /program.
  virtual std::vector<NamedOptimizer> optimizers() = 0;
  virtual std::vector<NamedTensor> vectors() { return {}; }
  /// After a checkpoint has been read into weights, optimizers and vectors, on all ranks.
  virtual void resumed() {}

  /// What carries its gradients between ranks, for the banner.
  virtual std::string backend() const = 0;
  /// Whether the gradient travels in buckets, as gradient_messages() (scaling.hpp) plans them, while the backward pass goes on.
  virtual bool sends_buckets() const { return false; }
  /// Lines of the banner about batches and whatever else the program decided. Collective.
  virtual std::vector<std::pair<std::string, std::string>> facts() = 0;
};

/// The program of a model: its own, or else gradients of shards (sharded_step.hpp) and one optimizer.
/// errors  Error (usage): a batch that does not fit the data
std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, Model& model, int threads);

}  // namespace lockstep
