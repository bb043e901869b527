#pragma once
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/tensor/tensor.hpp"

/// Sums of losses in f64, in a fixed order.
namespace lockstep::gpu {

inline constexpr int kTotalThreads = 256;
inline constexpr std::int64_t kTotalBlocks = 512;

/// Stores the sum over the threads of a block in the block's slot; total() then adds the slots.
__device__ inline void put_partial(double* partials, double mine) {
  const double sum = block_reduce(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;  // mutant-equivalent: every thread has the sum
}

template <class T>
__global__ void __launch_bounds__(kTotalThreads)
    total_kernel(T* total, const double* __restrict__ partials, int count) {
  double mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kTotalThreads) mine += partials[i];
  const double sum = block_reduce(mine);
  if (threadIdx.x == 0) *total = static_cast<T>(sum);
}
/// total () = the sum of `count` partial sums, converted to its dtype.
inline void total(const Stream& stream, const Tensor& total, const double* partials, std::int64_t count) {
  visit_float(total.dtype(), [&]<class T>() {
    launch(stream, {.grid = 1, .block = kTotalThreads}, total_kernel<T>, total.data<T>(), partials,
           static_cast<int>(count));
  });
}

}  // namespace lockstep::gpu
