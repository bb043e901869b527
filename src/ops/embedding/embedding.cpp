#include "lockstep/ops/embedding.hpp"

#include "embedding_kernels.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/elementwise/elementwise_kernels.hpp"

namespace lockstep::ops {

namespace {
void check(const char* what, const Tensor& table, const Tensor& y, std::span<const std::int32_t> ids) {
  require(
      table.shape().rank() == 2 && y.columns() == table.columns() && y.rows() == static_cast<std::int64_t>(ids.size()),
      what, ": table is ", table.shape(), ", there are ", ids.size(), " ids, the rows are ", y.shape());
  for (const std::int32_t id : ids)
    require(id >= 0 && id < table.shape()[0], what, ": row ", id, " of a table of ", table.shape()[0], " rows");
}
}  // namespace

void embedding_forward(Stream& stream, const Tensor& y, const Tensor& table, std::span<const std::int32_t> ids,
                       double scale) {
  check("embedding", table, y, ids);
  const std::int64_t columns = table.columns();
  if (on_gpu(table, [&]<class T>() {
        cuda::embedding_forward<T>(stream, y.rows(), columns, y.data<T>(), table.data<T>(), ids.data(),
                                   static_cast<real_t<T>>(scale));
      }))
    return;
  visit_float(table.dtype(), [&]<class T>() {
    const T factor = static_cast<T>(scale);
    T* to = y.data<T>();
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    for (const std::int32_t id : ids) {
      scale_row(columns, to, table.data<T>() + id * columns, factor, false);
      to += columns;
    }
  });
}

void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, std::span<const std::int32_t> ids,
                        double scale, std::int64_t padding) {
  check("embedding backward", dtable, dy, ids);
  const std::int64_t columns = dtable.columns();
  if (on_gpu(dy, [&]<class T>() {
        using R = real_t<T>;
        cuda::embedding_backward<T>(stream, dy.rows(), columns, dtable.shape()[0], dtable.data<R>(), dy.data<T>(),
                                    ids.data(), static_cast<R>(scale), padding);
      }))
    return;
  visit_float(dtable.dtype(), [&]<class T>() {
    const T factor = static_cast<T>(scale);
    const T* from = dy.data<T>();
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    for (const std::int32_t id : ids) {
      if (id != padding) scale_row(columns, dtable.data<T>() + id * columns, from, factor, true);
      from += columns;
    }
  });
}

}  // namespace lockstep::ops
