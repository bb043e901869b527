#pragma once
#include <algorithm>
#include <utility>

#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/tensor/tensor.hpp"

/// Sums of losses in f64, in a fixed order.
namespace lockstep::gpu {

inline constexpr int kTotalThreads = 256;
inline constexpr std::int64_t kTotalBlocks = 512;

/// Stores the sum over the threads of a block in the block's slot; total() then adds the slots.
__device__ inline void put_partial(double* partials, double mine) {
  const double sum = block_reduce(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(kTotalThreads)
    total_kernel(gpu::Earlier earlier, T* total, const double* __restrict__ partials, int count) {
  earlier.wait();
  double mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kTotalThreads) mine += partials[i];
  const double sum = block_reduce(mine);
  if (threadIdx.x == 0) *total = static_cast<T>(sum);
}
/// Launches kernel(partials, args...), whose blocks of kTotalThreads threads share work for `threads` threads and call
/// put_partial(). total () = the sum of the partial sums, converted to its dtype.
template <class... Params, class... Args>
void launch_total(const Stream& stream, const Tensor& total, std::int64_t threads,
                  void (*kernel)(Earlier, double*, Params...), Args&&... args) {
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(threads, kTotalThreads), 1, kTotalBlocks);
  double* const partials = scratch<double>(stream, kTotalBlocks);
  launch(stream, {.grid = blocks, .block = kTotalThreads}, kernel, partials, std::forward<Args>(args)...);
  visit_float(total.dtype(), [&]<class T>() {
    launch(stream, {.block = kTotalThreads}, total_kernel<T>, total.data<T>(), partials, static_cast<int>(blocks));
  });
}

}  // namespace lockstep::gpu
