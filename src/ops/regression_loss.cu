#include "lockstep/ops/regression_loss.hpp"

#include <array>

#include "lockstep/device/cuda_half.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/regression.hpp"
#include "ops/common/total_cuda.hpp"

namespace lockstep::ops {

namespace {

/// One element per thread, grid-stride. Memory bound: reads y and target, writes dy. weights: of the rows, or null.
template <class T, class Op>
__global__ void __launch_bounds__(gpu::kTotalThreads)
    regression_loss_kernel(gpu::Earlier earlier, double* partials, std::int64_t n, real_t<T>* dy,
                           const T* __restrict__ y, const real_t<T>* __restrict__ target, std::int64_t columns,
                           const real_t<T>* __restrict__ weights) {
  earlier.wait();
  double mine = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * gpu::kTotalThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * gpu::kTotalThreads) {
    const real_t<T> weight = weights != nullptr ? weights[gpu::quotient(i, columns)] : real_t<T>{1};
    real_t<T> gradient;
    mine += static_cast<double>(weight * Op{}(gpu::load(y + i) - target[i], gradient));
    if (dy != nullptr) dy[i] = weight * gradient;
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

/// Independent partial sums, so that an addition need not wait for the one before.
constexpr std::int64_t kSums = 8;

/// Sums f(d, gradient) over all elements in f64.
template <class T, class F>
double sum_elements(std::int64_t n, T* dy, const T* y, const T* target, const F& f) {
  std::array<double, kSums> sums{};
  for (std::int64_t first = 0; first < n; first += kSums) {
    const std::int64_t count = n - first < kSums ? n - first : kSums;
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = first + j;
      T gradient{};
      sums[j] += static_cast<double>(f(y[i] - target[i], gradient));
      if (dy) dy[i] = gradient;
    }
  }
  double total = 0;
  for (const double s : sums) total += s;
  return total;
}

void check_scalar(const char* what, const Tensor& loss) {
  require(loss.size() == 1, what, ": loss must be one number, not ", loss.shape());
}
void store(const Tensor& loss, double sum) {
  visit_float(loss.dtype(), [&]<class T>() { *loss.data<T>() = static_cast<T>(sum); });
}
}  // namespace

void regression_loss(Stream& stream, const Tensor& loss, const Tensor& dy, const Tensor& y, const Tensor& target,
                     Regression kind, const Tensor& weights) {
  require(target.shape() == y.shape() && (!dy || dy.shape() == y.shape()), "regression loss: y is ", y.shape(),
          ", target ", target.shape(), "; they must be equal");
  require(!weights || weights.size() == y.rows(), "regression loss: y is ", y.shape(), ", with ", weights.size(),
          " weights; they must be one per row");
  check_scalar("regression loss", loss);
  on_gpu(y, [&]<class T>() {
    using R = real_t<T>;
    visit_regression(kind, [&]<class Op>(Op) {
      gpu::launch_total(stream, loss, y.size(), regression_loss_kernel<T, Op>, y.size(), dy.data<R>(), y.data<T>(),
                        target.data<R>(), y.columns(), weights.data<R>());
    });
  });
  on_cpu(y, [&]<class T>() {
    const T* weight = weights.data<T>();
    const std::int64_t columns = y.columns();
    store(loss, visit_regression(kind, [&](auto f) {
            if (weight == nullptr) return sum_elements<T>(y.size(), dy.data<T>(), y.data<T>(), target.data<T>(), f);
            double sum = 0;
            for (std::int64_t r = 0; r < y.rows(); ++r) {
              T* row = dy ? dy.data<T>() + r * columns : nullptr;
              sum += static_cast<double>(weight[r]) *
                     sum_elements<T>(columns, row, y.data<T>() + r * columns, target.data<T>() + r * columns, f);
              for (std::int64_t c = 0; row != nullptr && c < columns; ++c) row[c] *= weight[r];
            }
            return sum;
          }));
  });
}

void smoothness_loss(Stream& stream, const Tensor& loss, const Tensor& dy, const Tensor& y,
                     std::span<const double> mean, std::span<const double> std, int order) {
  const std::int64_t columns = y.columns(), rows = y.rows();
  require(order == 1 || order == 2, "smoothness loss: order ", order, " is not 1 or 2");
  require(columns > order, "smoothness loss: ", columns, " output columns have no finite difference of order ", order);
  require(std::ssize(mean) == columns && std::ssize(std) == columns, "smoothness loss: y is ", y.shape(),
          ", but there are ", mean.size(), " means and ", std.size(), " deviations");
  require(!dy || dy.shape() == y.shape(), "smoothness loss: y is ", y.shape(), ", so dy must be too, not ", dy.shape());
  check_scalar("smoothness loss", loss);
  on_gpu(y, [&]<class T>() {
    // The partial sums are at the start of the scratch memory.
    double* moments = gpu::scratch<double>(stream, gpu::kTotalBlocks + 2 * columns) + gpu::kTotalBlocks;
    copy_bytes(stream, moments, mean.data(), mean.size_bytes());
    copy_bytes(stream, moments + columns, std.data(), std.size_bytes());
    gpu::launch_total(stream, loss, y.size(), smoothness_loss_kernel<T>, y.size(), columns, dy.data<real_t<T>>(),
                      y.data<T>(), moments, order);
  });
  on_cpu(y, [&]<class T>() {
    if (dy) fill_zero(stream, dy);
    double total = 0;
    const auto physical = [&](const T* row, std::int64_t c) {
      const auto i = static_cast<std::size_t>(c);
      return static_cast<double>(row[c]) * std[i] + mean[i];
    };
    const std::array<double, 3> stencil =
        order == 1 ? std::array<double, 3>{-1, 1, 0} : std::array<double, 3>{1, -2, 1};
    for (std::int64_t m = 0; m < rows; ++m) {
      const T* row = y.data<T>() + m * columns;
      T* d = dy ? dy.data<T>() + m * columns : nullptr;
      for (std::int64_t c = 0; c + order < columns; ++c) {
        double difference = 0;
        for (int j = 0; j <= order; ++j) difference += stencil[j] * physical(row, c + j);
        total += difference * difference;
        for (int j = 0; d && j <= order; ++j) d[c + j] += static_cast<T>(2 * difference * stencil[j] * std[c + j]);
      }
    }
    store(loss, total);
  });
}

}  // namespace lockstep::ops
