#include "lockstep/ops/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "ops/common/loss_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

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
  on_gpu(x, [&]<class T>() { cuda::cross_entropy<T>(stream, rows, classes, loss, dx, x, label, weight, smoothing); });
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
