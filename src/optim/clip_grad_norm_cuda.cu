#include <algorithm>

#include "lockstep/base/instantiate.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/square_sum_cuda.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

using gpu::kWarp;
constexpr int kThreads = kSquareThreads;
/// Minimum elements per partial sum and maximum number of sums: enough blocks to fill a GPU, few enough sums for the
/// host.
constexpr std::int64_t kElementsPerSum = 4096, kMostSums = 1024;

/// One block per partial sum.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(gpu::Earlier earlier, double* sums, std::int64_t n, const T* __restrict__ x) {
  earlier.wait();
  const double sum = square_sum(n, x, blockIdx.x, gridDim.x);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// Grid-stride. Traffic: reads x and y, writes y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_scaled_kernel(gpu::Earlier earlier, T* y, const T* __restrict__ x, T factor, std::int64_t n) {
  earlier.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) y[i] += factor * x[i];
}

/// One warp per row of y. An extra pass over the row tests for a non-zero element.
template <class T>
__global__ void __launch_bounds__(kThreads) add_scaled_rows_kernel(gpu::Earlier earlier, T* y, const T* __restrict__ x,
                                                                   T factor, std::int64_t rows, std::int64_t row) {
  earlier.wait();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t stride = std::int64_t{gridDim.x} * (kThreads / kWarp);
  for (std::int64_t r = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp; r < rows; r += stride) {
    bool mine = false;
    for (std::int64_t c = lane; c < row; c += kWarp) mine = mine || y[r * row + c] != 0;
    if (!__any_sync(gpu::kWholeWarp, mine)) continue;
    for (std::int64_t c = lane; c < row; c += kWarp) y[r * row + c] += factor * x[r * row + c];
  }
}

}  // namespace

std::int64_t partial_sums(std::int64_t n) { return std::min((n + kElementsPerSum - 1) / kElementsPerSum, kMostSums); }

template <class T>
void sum_squares(const Stream& stream, double* sums, std::int64_t n, const T* x) {
  gpu::launch(stream, {.grid = partial_sums(n), .block = kThreads}, sum_squares_kernel<T>, sums, n, x);
}

template <class T>
void add_scaled(const Stream& stream, T* y, const T* x, double factor, std::int64_t rows, std::int64_t row,
                bool skip_zero) {
  if (skip_zero)
    gpu::launch(stream, gpu::grid_for(rows * kWarp, kThreads), add_scaled_rows_kernel<T>, y, x, static_cast<T>(factor),
                rows, row);
  else
    gpu::launch(stream, gpu::grid_for(rows * row, kThreads), add_scaled_kernel<T>, y, x, static_cast<T>(factor),
                rows * row);
}

LOCKSTEP_EACH_FLOAT(sum_squares, add_scaled)

}  // namespace lockstep::optim_kernels::cuda
