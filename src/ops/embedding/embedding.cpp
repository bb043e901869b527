#include "lockstep/ops/embedding.hpp"

#include "embedding_kernels.hpp"
#include "lockstep/ops/dropout.hpp"
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

template <class T>
cuda::FromTable<T> from(const EmbeddedRows& rows) {
  return {rows.table ? rows.table.data<T>() : nullptr, rows.ids.data(), static_cast<real_t<T>>(rows.scale)};
}
/// y_m = scale table[ids_m], or added to y
void add_rows(const Tensor& y, const EmbeddedRows& rows, bool accumulate) {
  visit_float(y.dtype(), [&]<class T>() {
    const std::int64_t columns = y.columns();
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    T* to = y.data<T>();
    const T* const table = rows.table.data<T>();
    // Rows lie anywhere, so each would wait for the third-level cache or memory.
    constexpr std::size_t kAhead = 8;
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::size_t m = 0; m < rows.ids.size(); ++m, to += columns) {
      if (m + kAhead < rows.ids.size())
        for (std::int64_t c = 0; c < columns; c += kLine)
          __builtin_prefetch(table + rows.ids[m + kAhead] * columns + c);
      scale_row(columns, to, table + rows.ids[m] * columns, static_cast<T>(rows.scale), accumulate);
    }
  });
}
}  // namespace

void embedding_forward(Stream& stream, const Tensor& y, const Tensor& table, std::span<const std::int32_t> ids,
                       double scale) {
  embedding_sum(stream, y, {table, ids, scale}, {}, {}, {});
}

void embedding_sum(Stream& stream, const Tensor& y, const EmbeddedRows& a, const EmbeddedRows& b,
                   const Dropout& dropout, const SampleRows& rows) {
  check("embedding", a.table, y, a.ids);
  if (b.table) check("embedding", b.table, y, b.ids);
  require(!dropout || y.rows() == rows.rows(), "embedding: y is ", y.shape(), ", but the ", rows.count(),
          " samples have ", rows.rows(), " rows");
  if (on_gpu(y, [&]<class T>() {
        cuda::embedding_sum<T>(stream, y.rows(), y.columns(), y.data<T>(), from<T>(a), from<T>(b), dropout, rows);
      }))
    return;
  add_rows(y, a, false);
  if (b.table) add_rows(y, b, true);
  if (dropout) ops::dropout(stream, {y}, y, dropout, rows);
}

void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, std::span<const std::int32_t> ids,
                        double scale, std::int64_t padding, std::span<const std::int32_t> places) {
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
    if (places.empty()) places = ids;
    for (std::size_t m = 0; m < ids.size(); ++m, from += columns)
      if (ids[m] != padding) scale_row(columns, dtable.data<T>() + places[m] * columns, from, factor, true);
  });
}

}  // namespace lockstep::ops
