#pragma once
// The part of CUDA's header of this name that Lockstep uses: the barrier of a grid.
#include "cuda_runtime.h"

namespace cuda_host {
/// Waits until all threads of all blocks have arrived, all at the same line. Only in a cooperative launch.
void grid_barrier(Place place);
}  // namespace cuda_host

namespace cooperative_groups {

class grid_group {
 public:
  void sync(cuda_host::Place place = cuda_host::Place::current()) const { cuda_host::grid_barrier(place); }
};
inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups
