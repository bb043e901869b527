#include "lockstep/device/cuda_half.hpp"
#include "ops/common/loss_kernels.hpp"
#include "ops/common/regression.hpp"
#include "ops/common/total_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// One element per thread, grid-stride. Memory bound: reads y and target, writes dy.
template <class T, class Op>
__global__ void __launch_bounds__(gpu::kTotalThreads)
    regression_loss_kernel(gpu::Earlier earlier, double* partials, std::int64_t n, real_t<T>* dy,
                           const T* __restrict__ y, const real_t<T>* __restrict__ target) {
  earlier.wait();
  double mine = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * gpu::kTotalThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * gpu::kTotalThreads) {
    real_t<T> gradient;
    mine += static_cast<double>(Op{}(gpu::load(y + i) - target[i], gradient));
    if (dy != nullptr) dy[i] = gradient;
  }
  gpu::put_partial(partials, mine);
}

/// One element per thread, grid-stride. It counts the difference that begins at its element, and gathers the gradient
/// from all differences that include it. moments: means, then deviations.
template <class T>
__global__ void __launch_bounds__(gpu::kTotalThreads)
    smoothness_loss_kernel(gpu::Earlier earlier, double* partials, std::int64_t n, std::int64_t columns, real_t<T>* dy,
                           const T* __restrict__ y, const double* __restrict__ moments, int order) {
  earlier.wait();
  const auto weight = [&](int j) { return order == 1 ? 2.0 * j - 1 : j == 1 ? -2.0 : 1.0; };
  double mine = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * gpu::kTotalThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * gpu::kTotalThreads) {
    const std::int64_t column = i % columns;
    const T* row = y + (i - column);
    const auto difference = [&](std::int64_t c) {
      double sum = 0;
      for (int j = 0; j <= order; ++j)
        sum += weight(j) * (static_cast<double>(gpu::load(row + c + j)) * moments[columns + c + j] + moments[c + j]);
      return sum;
    };
    double slope = 0;
    for (int j = 0; j <= order; ++j) {
      const std::int64_t c = column - j;
      if (c < 0 || c + order >= columns) continue;
      const double d = difference(c);
      if (j == 0) mine += d * d;
      slope += 2 * d * weight(j);
    }
    if (dy != nullptr) dy[i] = static_cast<real_t<T>>(slope * moments[columns + column]);
  }
  gpu::put_partial(partials, mine);
}

}  // namespace

template <class T>
void regression_loss(const Stream& stream, std::int64_t n, Tensor loss, real_t<T>* dy, const T* y,
                     const real_t<T>* target, Regression kind) {
  visit_regression(
      kind, [&]<class Op>(Op) { gpu::launch_total(stream, loss, n, regression_loss_kernel<T, Op>, n, dy, y, target); });
}

template <class T>
void smoothness_loss(const Stream& stream, std::int64_t rows, std::int64_t columns, Tensor loss, real_t<T>* dy,
                     const T* y, const double* mean, const double* std, int order) {
  const auto bytes = static_cast<std::size_t>(columns) * sizeof(double);
  // The partial sums are at the start of the scratch memory.
  double* moments = gpu::scratch<double>(stream, gpu::kTotalBlocks + 2 * columns) + gpu::kTotalBlocks;
  copy_bytes(stream, moments, mean, bytes);
  copy_bytes(stream, moments + columns, std, bytes);
  gpu::launch_total(stream, loss, rows * columns, smoothness_loss_kernel<T>, rows * columns, columns, dy, y, moments,
                    order);
}

LOCKSTEP_EACH_STORAGE(regression_loss, smoothness_loss)

}  // namespace lockstep::ops::cuda
