#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/device/ledger.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/task.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep::apps {

/// The length of a measurement: `steps` steps, or if that is 0 as many as fit into `seconds`.
struct StepBudget {
  std::int64_t steps = 0;
  std::int64_t warmup = 20;  ///< steps before the measured ones; at least one
  double seconds = 3;
  std::int64_t least = 50;     ///< minimum of steps, unless they take more than ten times `seconds`
  std::int64_t from_step = 0;  ///< first step, counted within an epoch
  std::int64_t profiled = 0;   ///< further steps, which are recorded
  bool ledger = false;         ///< keep a ledger of the measured steps
};

/// Measured training steps. Units: seconds per step, means over steps and ranks unless stated otherwise.
struct StepMeasurement {
  int ranks = 1, threads = 1;
  ProgramFacts facts;
  std::int64_t batch = 0;  ///< samples of a step, over all ranks
  std::int64_t rows = 0;   ///< of the training split
  std::int64_t steps = 0;
  std::vector<double> samples_per_s;  ///< over all ranks, one value per window of steps
  double median_s = 0, p95_s = 0, mean_s = 0, first_s = 0;
  double compute_s = 0, reduce_s = 0, update_s = 0;
  /// The part of reduce_s that is communication and not waiting for slower ranks: the minimum over ranks in each step,
  /// reached by the last rank to arrive. Median over steps, because other programs on the cores disturb it less than
  /// the mean; at most the mean, so that it is a part of mean_s.
  double exposed_s = 0;
  double alone_s = 0;         ///< of a blocking all-reduce of the gradient without computation: median; 0 on one rank
  double gradient_bytes = 0;  ///< in f32
  double memory_bytes = 0;    ///< resident, or of the GPU; of the rank with the most
  GpuMemory gpu_memory;       ///< of this rank's GPU; zeros without one
  std::array<std::size_t, kMemoryUses> host_memory{};  ///< of this rank
  Timeline timeline;                                   ///< of the recorded steps, on rank 0
  double recorded_s = 0;                               ///< median of a recorded step
  Ledger ledger;                                       ///< of the measured steps, of this rank
  double start_s = 0;                                  ///< from the start of the process to the end of the first step
};

/// Runs training steps of the task's training program. Collective; equal on all ranks except for the windows.
/// errors  Error (usage): an epoch is shorter than budget.from_step
StepMeasurement measure_step(World& world, const RunConfig& config, Task& model, int threads, const StepBudget& budget);

/// The number of repetitions that fill `seconds` if one takes `each_s` on the slowest rank; equal on all ranks.
/// Collective.
std::int64_t repetitions(Communicator& comm, double each_s, double seconds, std::int64_t least);
/// The nearest-rank quantile of values, by default the median; 0 if there are none.
double quantile(std::vector<double> values, double at = 0.5);

}  // namespace lockstep::apps
