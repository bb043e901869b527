#include "lockstep/ops/dropout.hpp"

#include <algorithm>

#include "dropout_kernels.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

void check(const Tensor& y, const Tensor& x, const Dropout& dropout, const SampleRows& rows) {
  require(y.shape() == x.shape(), "dropout: x is ", x.shape(), ", so y must be too, not ", y.shape());
  require(dropout.rate >= 0 && dropout.rate < 1, "dropout: rate ", dropout.rate, ": must be in [0, 1)");
  require(x.shape().rank() > 0 && x.shape()[0] == rows.rows(), "dropout: x is ", x.shape(), ", but its ", rows.count(),
          " samples have ", rows.rows(), " rows");
}

/// y = x with dropout, plus `to` unless that is empty. Drops the same elements of `also` unless that is empty (CPU
/// only).
void drop(Stream& stream, const Tensor& y, const Tensor& to, const Tensor& x, const Tensor& also,
          const Dropout& dropout, const SampleRows& rows) {
  require(!also || !y.device().is_cuda(), "dropout_both: a derivative is only dropped on a CPU");
  const cpu::DropRate rate(dropout.rate);
  const std::int64_t width = x.size() / std::max<std::int64_t>(1, x.shape()[0]);
  on_gpu(x, [&]<class T>() { cuda::dropout<T>(stream, width, y, to, x, dropout, rows); });
  on_cpu(x, [&]<class T>() {
    const auto kernel = cpu::active_dropout_kernel<T>();
    const T* const added = to.data<T>();
    for (std::size_t b = 0; b < rows.samples.size(); ++b) {
      const std::int64_t first = rows.offsets[b] * width;
      kernel(rows.offsets[b + 1] * width - first, y.data<T>() + first, added ? added + first : nullptr,
             x.data<T>() + first, also ? also.data<T>() + first : nullptr,
             cpu::PhiloxKey(dropout.draws(rows.samples[b])), rate);
    }
    T* const behind = y.data<T>() + rows.used() * width;
    if (added == nullptr) std::fill(behind, y.data<T>() + y.size(), T{0});
    if (also) std::fill(also.data<T>() + rows.used() * width, also.data<T>() + y.size(), T{0});
    if (added != nullptr && added != y.data<T>()) std::copy(added + rows.used() * width, added + y.size(), behind);
  });
}

}  // namespace

void dropout(Stream& stream, Target y, const Tensor& x, const Dropout& dropout, const SampleRows& rows) {
  if (!y) return;
  check(y.tensor, x, dropout, rows);
  if (!dropout) return scale(stream, y, x, 1);
  drop(stream, y.tensor, y.accumulate ? y.tensor : Tensor(), x, {}, dropout, rows);
}

void dropout_both(Stream& stream, const Tensor& y, const Tensor& derivative, const Tensor& base, const Dropout& dropout,
                  const SampleRows& rows) {
  check(y, y, dropout, rows);
  for (const Tensor* t : {&derivative, &base})
    require(!*t || t->shape() == y.shape(), "dropout_both: y is ", y.shape(),
            ", so derivative and base must be too, not ", t->shape());
  drop(stream, y, base, y, derivative, dropout, rows);
}

}  // namespace lockstep::ops
