#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep::apps {

/// How long to measure a training: so many steps, or when that is 0 as many as fill the seconds.
struct StepBudget {
  std::int64_t steps = 0;
  std::int64_t warmup = 20;  ///< steps before the measured ones; one at least
  double seconds = 3;
  std::int64_t least = 50;     ///< steps, unless they take more than ten times the seconds
  std::int64_t from_step = 0;  ///< where in an epoch to begin
};

/// Steps of a training as this allocation takes them. Units: seconds per step, means over steps and ranks unless said otherwise.
struct StepMeasurement {
  int ranks = 1, threads = 1;
  std::int64_t batch = 0;  ///< samples of a step, over all ranks
  std::int64_t rows = 0;   ///< of the training split
  std::int64_t steps = 0;
  std::vector<double> samples_per_s;  ///< over all ranks, one figure per window of some steps
  double median_s = 0, p95_s = 0, mean_s = 0, first_s = 0;
  double compute_s = 0, reduce_s = 0, update_s = 0;
  /// Of reduce_s what is communication and not waiting for a slower rank: in each step the time of the rank that has least of
  /// it, the one that came last; of these the median over steps, which other programs on the same cores disturb less than the mean.
  double exposed_s = 0;
  double alone_s = 0;  ///< a blocking all-reduce of the gradient with nothing else going on: median; 0 on one rank
  double gradient_bytes = 0;  ///< in f32
  bool buckets = false;       ///< the gradient travels in buckets while the backward pass goes on
  double memory_bytes = 0;    ///< resident, or of its GPU, of the largest rank
  GpuMemory gpu_memory;       ///< of this rank's GPU; all 0 without one
  double start_s = 0;         ///< from the start of the process to the end of the first step
};

/// Takes training steps by the model's own training program. Collective; the same on all ranks but for the windows.
/// errors  Error (usage): an epoch is shorter than budget.from_step
StepMeasurement measure_step(World& world, const RunConfig& config, Model& model, int threads,
                             const StepBudget& budget);

/// How many repetitions of something that takes `each_s` on the slowest rank fill the time; the same on all ranks. Collective.
std::int64_t repetitions(Communicator& comm, double each_s, double seconds, std::int64_t least);
/// A quantile by rank, the median unless said otherwise; 0 of nothing.
double quantile(std::vector<double> values, double at = 0.5);

}  // namespace lockstep::apps
