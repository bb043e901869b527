#pragma once
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_scratch.hpp"

/// Work that a launch does after all its blocks: the last block to finish does it.
namespace lockstep::gpu {

/// Whether this block is the last of `blocks` blocks that share a counter (block_counters()). The last block sees all
/// values that the other blocks wrote before their calls; it must read them through pointers without __restrict__. All
/// threads of the block call it.
__device__ inline bool is_last_block(unsigned* arrived, unsigned blocks) {
  __shared__ bool sm_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) sm_last = atomicInc(arrived, blocks - 1) == blocks - 1;
  __syncthreads();
  __threadfence();
  return sm_last;
}

}  // namespace lockstep::gpu
