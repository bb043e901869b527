#pragma once
#include <algorithm>

#include "lockstep/comm/gpu_reduce.hpp"
#include "support/mpi_main.hpp"

/// The GPU of this rank. Ranks share GPUs if there are too few.
inline lockstep::Device own_gpu() {
  return {lockstep::DeviceKind::cuda, test_world().rank() % std::max(1, lockstep::gpu_count())};
}
/// Whether NCCL can connect the ranks: each has a GPU of its own, or another host name (tests/gpu/apart.sh). Collective.
inline bool gpu_for_each_rank() { return lockstep::gpus_are_apart(test_world().communicator(), own_gpu()); }
