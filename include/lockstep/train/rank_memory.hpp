#pragma once
#include <cstdint>

#include "lockstep/train/run_config.hpp"

namespace lockstep {

class World;

/// The ranks of a planned run, and the threads of each rank.
struct PlannedRanks {
  std::int64_t ranks = 1, threads = 1;
};

/// The memory of a training rank. On a GPU it is GPU memory, without the data set's copy in host memory. Weights,
/// gradients and optimizer state are exact; activations are estimates, within a third of the size of the arenas after
/// some steps. The program and its libraries, about 30 MiB, are not counted. Units: bytes.
struct RankMemory {
  double weights = 0, rounded = 0, gradients = 0, own_gradient = 0, state = 0, average = 0, carried = 0;
  double activations = 0, scratch = 0, arrays = 0, evaluation = 0;
  double data = 0;      ///< the data set in GPU memory
  double products = 0;  ///< scratch of the GPU's matrix products
  bool on_gpu = false;
  double gradient_buffers = 0;  ///< number of buffers in `gradients`
  double all_state = 0;         ///< optimizer state of all ranks
  double whole_copy = 0;        ///< of the state of all ranks, in host memory, for the loss of another rank
  double sum() const {
    return weights + rounded + gradients + own_gradient + state + average + carried + activations + scratch + arrays +
           evaluation + data + products + (on_gpu ? 0 : whole_copy);
  }
};

/// The needs of the run with a batch of this size over all ranks. errors  as TaskConfig::needs()
TaskNeeds needs_of(const RunConfig& config, int ranks, std::int64_t batch);
/// needs  needs_of() the same batch
RankMemory rank_memory(const RunConfig& config, const PlannedRanks& ranks, const TaskNeeds& needs, std::int64_t batch);

/// Before a training on CPUs builds its network: compares the weights, gradients and optimizer state of the ranks of
/// rank 0's node with memory_limit(). Collective. errors  Error (usage): they do not fit
void require_memory(World& world, const RunConfig& config);

}  // namespace lockstep
