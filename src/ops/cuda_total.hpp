#pragma once
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/tensor/tensor.hpp"

/// Sums over everything in f64, always in the same order: losses.
namespace lockstep::gpu {

inline constexpr int kTotalThreads = 256;
inline constexpr std::int64_t kTotalBlocks = 512;

/// What the threads of a block found, to the block's place; total() then adds the places up.
__device__ inline void put_partial(double* partials, double mine) {
  const double sum = block_reduce(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(kTotalThreads)
    total_kernel(T* total, const double* __restrict__ partials, int count) {
  double mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kTotalThreads) mine += partials[i];
  const double sum = block_reduce(mine);
  if (threadIdx.x == 0) *total = static_cast<T>(sum);
}
/// total () = the sum of `count` partial sums, in its own type.
inline void total(const Stream& stream, const Tensor& total, const double* partials, std::int64_t count) {
  visit_float(total.dtype(), [&]<class T>() {
    launch(stream, {.grid = 1, .block = kTotalThreads}, total_kernel<T>, total.data<T>(), partials,
           static_cast<int>(count));
  });
}

}  // namespace lockstep::gpu
