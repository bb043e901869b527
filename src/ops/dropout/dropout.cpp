#include "lockstep/ops/dropout.hpp"

#include <algorithm>

#include "dropout_kernels.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

void dropout(Stream& stream, Target y, const Tensor& x, const Dropout& dropout, const SampleRows& rows) {
  if (!y) return;
  require(y.tensor.shape() == x.shape(), "dropout: x is ", x.shape(), ", so y must be too, not ", y.tensor.shape());
  require(dropout.rate >= 0 && dropout.rate < 1, "dropout: rate ", dropout.rate, ": must be in [0, 1)");
  require(x.shape().rank() > 0 && x.shape()[0] == rows.rows(), "dropout: x is ", x.shape(), ", but its ", rows.count(),
          " samples have ", rows.rows(), " rows");
  if (!dropout) return scale(stream, y, x, 1);
  const cpu::DropRate rate(dropout.rate);
  const std::int64_t width = x.size() / std::max<std::int64_t>(1, x.shape()[0]);
  if (on_gpu(x, [&]<class T>() {
        cuda::dropout<T>(stream, width, y.tensor.data<T>(), x.data<T>(), y.accumulate, dropout, rows);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    const auto kernel = cpu::active_dropout_kernel<T>();
    for (std::size_t b = 0; b < rows.samples.size(); ++b) {
      const std::int64_t first = rows.offsets[b] * width;
      kernel(rows.offsets[b + 1] * width - first, y.tensor.data<T>() + first, x.data<T>() + first, y.accumulate,
             cpu::PhiloxKey(dropout.draws(rows.samples[b])), 0, rate);
    }
  });
}

}  // namespace lockstep::ops
