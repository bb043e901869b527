#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/log.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {

int choose_threads(World& world, std::int64_t wanted) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  int sharers = 0;  // ranks of this node with the same CPU mask
  const auto masks = world.node_communicator().all_gather(std::as_bytes(std::span(&mine, 1)), "processor masks");
  for (const auto& mask : masks) sharers += std::memcmp(mask.data(), &mine, sizeof mine) == 0 ? 1 : 0;
  int threads = static_cast<int>(wanted);
  if (threads == 0) {
    threads = std::getenv("OMP_NUM_THREADS") != nullptr ? omp_get_max_threads()
                                                        : std::max(1, omp_get_num_procs() / std::max(1, sharers));
  }
  const auto on_node =
      world.node_communicator().all_reduced(std::int64_t{threads}, ReduceOp::sum, "threads of this node");
  if (on_node > ::sysconf(_SC_NPROCESSORS_ONLN) && world.rank() == 0) {
    log::warning(on_node, " threads on the ", ::sysconf(_SC_NPROCESSORS_ONLN), " cores of ", world.host(),
                 "; use fewer ranks or --threads");
  }
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
  return threads;
}

}  // namespace lockstep
