#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>

#include "lockstep/comm/world.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

class Placement;
class RunLog;

/// Exit code of a run that stopped cleanly before its end, after a checkpoint: start it again to continue.
inline constexpr int kExitInterrupted = 85;

enum class Outcome : std::uint8_t { finished, interrupted };

/// The training loop of every model, on every rank: steps, evaluation, schedule, stopping rules, checkpoints, resume,
/// signals.
///
/// Every decision is taken from numbers that are the same on all ranks. `log` is null on all ranks but the one that
/// writes (rank 0).
class Trainer {
 public:
  /// errors  Error (usage): a batch larger than the training split, a run directory of another configuration, a
  /// checkpoint that does not fit
  Trainer(World& world, const RunConfig& config, Model& model, RunLog* log);
  ~Trainer();
  /// Until the configured end, a stopping rule, a signal (SIGTERM, SIGUSR1) or run.max_hours. Collective.
  Outcome run();
  const TrainState& state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads per rank: what is asked for, or OMP_NUM_THREADS, or the node's usable cores shared among its ranks.
int choose_threads(std::int64_t asked, int node_size);

/// Builds the model that the configuration names and loads its data, once per node. A failure on any rank is one
/// message and leaves all. Collective. `placement` owns the arrays and must outlive the model.
std::unique_ptr<Model> load_model(World& world, const RunConfig& config, Placement& placement);

}  // namespace lockstep
