#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "optim/cuda_kernels.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kThreads = 128;

/// One thread per column of a table row: blockIdx.x is the run, blockIdx.y the tile of columns. The indices of a run's
/// gradient rows go through shared memory, kThreads at a time, because they may lie in host memory, where each access
/// costs a microsecond. Four rows are in flight at once and are added in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sign_descent_kernel(T* table, const T* __restrict__ gradients, std::int64_t columns, const std::int32_t* ids,
                        const std::int32_t* starts, const std::int32_t* order, T shrink, T rate) {
  __shared__ std::int32_t sm_order[kThreads];
  const std::int32_t begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
  const std::int64_t c = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  T sum = 0;
  for (std::int32_t first = begin; first < end; first += kThreads) {
    const int count = end - first < kThreads ? end - first : kThreads;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < count) sm_order[threadIdx.x] = order[first + static_cast<int>(threadIdx.x)];
    __syncthreads();
    if (c >= columns) continue;
#pragma unroll 4
    for (int i = 0; i < count; ++i) sum += gradients[sm_order[i] * columns + c];
  }
  if (c >= columns) return;
  T& value = table[ids[blockIdx.x] * columns + c];
  value = shrink * value - rate * static_cast<T>((sum > 0) - (sum < 0));
}

}  // namespace

template <class T>
void sign_descent(const Stream& stream, T* table, const T* gradients, std::int64_t columns, std::int64_t runs,
                  const std::int32_t* ids, const std::int32_t* starts, const std::int32_t* order, T shrink, T rate) {
  if (runs * columns == 0) return;
  const dim3 grid(static_cast<unsigned>(runs), static_cast<unsigned>(gpu::ceil_div<std::int64_t>(columns, kThreads)));
  gpu::launch(stream, {.grid = grid, .block = kThreads}, sign_descent_kernel<T>, table, gradients, columns, ids, starts,
              order, shrink, rate);
}

LOCKSTEP_EACH_FLOAT(sign_descent)

}  // namespace lockstep::optim_kernels::cuda
