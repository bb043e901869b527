#pragma once
#include "lockstep/device/cuda_reduce.hpp"

namespace lockstep::optim_kernels::cuda {

inline constexpr int kSquareThreads = 256;

/// Partial sum `part` of `parts` of the squares of x. A block of kSquareThreads threads computes it, and all its
/// threads receive it. Parts interleave over x in runs of kSquareThreads elements. Each thread adds its elements in
/// ascending order, and the block adds its threads in a fixed tree. Memory bound: reads x once, with eight loads in
/// flight per thread.
template <class T>
__device__ double square_sum(std::int64_t n, const T* x, std::int64_t part, std::int64_t parts) {
  const std::int64_t stride = parts * kSquareThreads;
  double sum = 0;
#pragma unroll 8
  for (std::int64_t i = part * kSquareThreads + threadIdx.x; i < n; i += stride) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  }
  return gpu::block_reduce(sum);
}

}  // namespace lockstep::optim_kernels::cuda
