#include "lockstep/ops/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/device/cuda_half.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/total_cuda.hpp"

namespace lockstep::ops {

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

void cross_entropy(Stream& stream, const Tensor& loss, const Tensor& dx, const Tensor& x, const Tensor& labels,
                   double smoothing, const Tensor& weights) {
  const std::int64_t rows = x.rows(), classes = x.columns();
  require(labels.size() == rows && (!dx || dx.shape() == x.shape()) && (!weights || weights.size() == rows),
          "cross entropy: x is ", x.shape(), ", so labels and weights must be (", rows, ") and dx as x, not ",
          labels.shape(), ", ", weights.shape(), " and ", dx.shape());
  require(loss.size() == 1, "cross entropy: loss must be one number, not ", loss.shape());
  require(smoothing >= 0 && smoothing < 1, "cross entropy: smoothing ", smoothing, ": must be >= 0 and < 1");
  const std::int32_t* label = labels.data<std::int32_t>();
  const double* weight = weights.data<double>();
  for (std::int64_t n = 0; n < rows; ++n)
    if (label[n] < 0 || label[n] >= classes)
      throw Error(Fault::internal,
                  join("cross entropy: label ", label[n], " of row ", n, " is not in 0..", classes - 1));
  on_gpu(x, [&]<class T>() {
    using R = real_t<T>;
    gpu::launch_total(stream, loss, rows * kWarp, cross_entropy_kernel<T>, rows, classes, dx.data<R>(), x.data<T>(),
                      label, weight, static_cast<R>(smoothing / static_cast<double>(classes)),
                      static_cast<R>(1 - smoothing));
  });
  on_cpu(x, [&]<class T>() {
    const T* row = x.data<T>();
    T* d = dx.data<T>();
    const T others = static_cast<T>(smoothing / static_cast<double>(classes)), own = static_cast<T>(1 - smoothing);
    double total = 0;
    for (std::int64_t n = 0; n < rows; ++n, row += classes) {
      T largest = row[0];
      for (std::int64_t k = 1; k < classes; ++k) largest = std::max(largest, row[k]);
      T sum = 0, mean = 0;
      for (std::int64_t k = 0; k < classes; ++k) {
        const T shifted = row[k] - largest, e = std::exp(shifted);
        sum += e;
        mean += others * shifted;
        if (d) d[k] = e;
      }
      // The smoothed labels sum to 1, so -sum q log p = log sum - sum q (x - largest).
      const T w = weight ? static_cast<T>(weight[n]) : T{1};
      total += static_cast<double>(w * (std::log(sum) - mean - own * (row[label[n]] - largest)));
      if (!d) continue;
      const T inverse = 1 / sum;
      for (std::int64_t k = 0; k < classes; ++k) d[k] = w * (d[k] * inverse - others);
      d[label[n]] -= w * own;
      d += classes;
    }
    visit_float(loss.dtype(), [&]<class L>() { *loss.data<L>() = static_cast<L>(total); });
  });
}

}  // namespace lockstep::ops
