#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "lockstep/train/trainer.hpp"

namespace lockstep {

int choose_threads(World& world, std::int64_t asked) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  int sharers = 0;  // ranks of this node that may run on exactly these cores
  const auto everyone = world.node_communicator().all_gather(std::as_bytes(std::span(&mine, 1)), "processor masks");
  for (const auto& mask : everyone) sharers += std::memcmp(mask.data(), &mine, sizeof mine) == 0 ? 1 : 0;
  int threads = static_cast<int>(asked);
  if (threads == 0) {
    threads = std::getenv("OMP_NUM_THREADS") != nullptr ? omp_get_max_threads()
                                                        : std::max(1, omp_get_num_procs() / std::max(1, sharers));
  }
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
  return threads;
}

}  // namespace lockstep
