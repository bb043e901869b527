#pragma once
#include "lockstep/device/cuda_launch.hpp"

/// Work that follows that of all blocks, in the same launch: the last block to finish does it.
namespace lockstep::gpu {

inline constexpr int kBlockCounters = 1024;
/// Counters (kBlockCounters) of blocks that have arrived, for launches of the calling thread. They are 0 between
/// launches: is_last_block() ends with 0. Only where kHasCuda.
unsigned* block_counters(const Stream& stream);

/// Whether this block is the last of `blocks` blocks that share a counter. What the others have written before the call
/// is then visible; it must be read through pointers without __restrict__. All threads of the block call it.
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
