#include <cmath>

#include "lockstep/device/cuda_half.hpp"
#include "ops/common/loss_kernels.hpp"
#include "ops/common/total_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;

/// One warp per row, with three passes over it (largest, sum of exponentials, gradient), the later ones from the
/// caches. Memory bound: reads x, writes dx.
template <class T>
__global__ void __launch_bounds__(gpu::kTotalThreads)
    cross_entropy_kernel(gpu::Earlier earlier, double* partials, std::int64_t rows, std::int64_t classes, real_t<T>* dx,
                         const T* __restrict__ x, const std::int32_t* __restrict__ labels,
                         const double* __restrict__ weights, real_t<T> others, real_t<T> own) {
  earlier.wait();
  using R = real_t<T>;
  // mutant-equivalent: another thread or block does the same work
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warps = std::int64_t{gridDim.x} * (gpu::kTotalThreads / kWarp);
  double mine = 0;
  for (std::int64_t n = (std::int64_t{blockIdx.x} * gpu::kTotalThreads + threadIdx.x) / kWarp; n < rows; n += warps) {
    const T* row = x + n * classes;
    const std::int32_t label = labels[n];
    R largest = gpu::load(row);
    for (std::int64_t k = lane; k < classes; k += kWarp) largest = gpu::Max()(gpu::load(row + k), largest);
    largest = gpu::warp_reduce(largest, gpu::Max());
    R sum = 0, mean = 0;
    for (std::int64_t k = lane; k < classes; k += kWarp) {
      const R shifted = gpu::load(row + k) - largest;
      sum += std::exp(shifted);
      mean += others * shifted;
    }
    sum = gpu::warp_reduce(sum);
    mean = gpu::warp_reduce(mean);
    // The smoothed labels sum to 1, so -sum q log p = log sum - sum q (x - largest).
    const R w = weights != nullptr ? static_cast<R>(weights[n]) : R{1};
    if (lane == 0) mine += static_cast<double>(w * (std::log(sum) - mean - own * (gpu::load(row + label) - largest)));
    if (dx == nullptr) continue;
    const R inverse = 1 / sum;
    for (std::int64_t k = lane; k < classes; k += kWarp) {
      const R p = std::exp(gpu::load(row + k) - largest) * inverse - others;
      dx[n * classes + k] = w * (k == label ? p - own : p);
    }
  }
  gpu::put_partial(partials, mine);
}

}  // namespace

template <class T>
void cross_entropy(const Stream& stream, std::int64_t rows, std::int64_t classes, Tensor loss, real_t<T>* dx,
                   const T* x, const std::int32_t* labels, const double* weights, double smoothing) {
  gpu::launch_total(stream, loss, rows * kWarp, cross_entropy_kernel<T>, rows, classes, dx, x, labels, weights,
                    static_cast<real_t<T>>(smoothing / static_cast<double>(classes)),
                    static_cast<real_t<T>>(1 - smoothing));
}

LOCKSTEP_EACH_STORAGE(cross_entropy)

}  // namespace lockstep::ops::cuda
