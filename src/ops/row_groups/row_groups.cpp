#include "lockstep/ops/row_groups.hpp"

#include "ops/common/on_gpu.hpp"
#include "ops/elementwise/elementwise_kernels.hpp"
#include "row_groups_kernels.hpp"

namespace lockstep::ops {

void copy_rows(Stream& stream, Target y, const Tensor& x, std::int64_t n) {
  if (!y) return;
  require(x.shape().rank() == 2 && y.tensor.size() == n * x.size(), "copy_rows: x is ", x.shape(), ", so ", n,
          " copies of each row do not fit into ", y.tensor.shape());
  const std::int64_t rows = x.rows(), c = x.columns();
  on_gpu(x, [&]<class T>() { cuda::copy_rows<T>(stream, rows, c, n, y.tensor, y.accumulate, x); });
  on_cpu(x, [&]<class T>() {
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    T* to = y.tensor.data<T>();
    const T* from = x.data<T>();
    for (std::int64_t row = 0; row < rows; ++row, from += c)
      for (std::int64_t i = 0; i < n; ++i, to += c) scale_row(c, to, from, T{1}, y.accumulate);
  });
}

void sum_rows(Stream& stream, Target y, const Tensor& x, std::int64_t n) {
  if (!y) return;
  require(y.tensor.shape().rank() == 2 && x.size() == n * y.tensor.size(), "sum_rows: y is ", y.tensor.shape(),
          ", so it cannot hold the sums of ", n, " rows each of ", x.shape());
  const std::int64_t rows = y.tensor.rows(), c = y.tensor.columns();
  on_gpu(x, [&]<class T>() { cuda::sum_rows<T>(stream, rows, c, n, y.tensor, y.accumulate, x); });
  on_cpu(x, [&]<class T>() {
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    T* to = y.tensor.data<T>();
    const T* from = x.data<T>();
    for (std::int64_t row = 0; row < rows; ++row, to += c)
      for (std::int64_t i = 0; i < n; ++i, from += c) scale_row(c, to, from, T{1}, i > 0 || y.accumulate);
  });
}

void mask_rows(Stream& stream, Target y, const Tensor& x, std::span<const std::int32_t> ids) {
  if (!y) return;
  require(y.tensor.shape() == x.shape() && x.rows() == std::ssize(ids), "mask_rows: x is ", x.shape(), ", y ",
          y.tensor.shape(), ", there are ", ids.size(), " ids");
  const std::int64_t c = x.columns();
  on_gpu(x, [&]<class T>() { cuda::mask_rows<T>(stream, x.rows(), c, y.tensor, y.accumulate, x, ids.data()); });
  on_cpu(x, [&]<class T>() {
    T* to = y.tensor.data<T>();
    const T* from = x.data<T>();
    for (const std::int32_t id : ids) {
      for (std::int64_t k = 0; k < c; ++k) to[k] = (id != 0 ? from[k] : T{0}) + (y.accumulate ? to[k] : T{0});
      from += c;
      to += c;
    }
  });
}

}  // namespace lockstep::ops
