#include "lockstep/ops/embedding.hpp"

#include <algorithm>

#include "embedding_kernels.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "lockstep/ops/dropout.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/elementwise/elementwise_kernels.hpp"

namespace lockstep::ops {

namespace {
void check(const char* what, const Tensor& table, const Tensor& y, std::span<const std::int32_t> ids) {
  require(table.shape().rank() == 2 && y.columns() == table.columns() && y.rows() == std::ssize(ids), what,
          ": table is ", table.shape(), ", there are ", ids.size(), " ids, the rows are ", y.shape());
  for (const std::int32_t id : host_readable(table.device(), ids))
    require(id >= 0 && id < table.shape()[0], what, ": row ", id, " of a table of ", table.shape()[0], " rows");
}

void check_pair(const char* what, const Tensor& tables, const Tensor& y, std::span<const std::int32_t> ids) {
  require(tables.shape().rank() == 3 && tables.shape()[0] == 2 && y.columns() == 2 * tables.columns(), what,
          ": the tables are ", tables.shape(), ", the rows ", y.shape(), "; they must be (2, R, C) and (M, 2 C)");
  check(what, tables.slice(0, 1).reshaped({tables.shape()[1], tables.columns()}),
        y.reshaped({2 * y.rows(), tables.columns()}).slice(0, y.rows()), ids);
}

template <class T>
cuda::FromTable<T> from(const EmbeddedRows& rows) {
  return {rows.table, rows.ids.data(), static_cast<real_t<T>>(rows.scale)};
}
/// y_m = scale table[ids_m], or added to y
template <class T>
void add_rows(const Tensor& y, const EmbeddedRows& rows, bool accumulate) {
  const std::int64_t columns = y.columns();
  const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
  T* to = y.data<T>();
  const T* const table = rows.table.data<T>();
  // Rows are scattered: without prefetches each one waits for the third-level cache or memory.
  constexpr std::size_t kAhead = 8;
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::size_t m = 0; m < rows.ids.size(); ++m, to += columns) {
    if (m + kAhead < rows.ids.size())
      for (std::int64_t c = 0; c < columns; c += kLine) __builtin_prefetch(table + rows.ids[m + kAhead] * columns + c);
    scale_row(columns, to, table + rows.ids[m] * columns, static_cast<T>(rows.scale), accumulate);
  }
}
}  // namespace

void embedding_forward(Stream& stream, const Tensor& y, const Tensor& table, std::span<const std::int32_t> ids,
                       double scale) {
  embedding_sum(stream, y, {table, ids, scale}, {}, {}, {});
}

void embedding_sum(Stream& stream, const Tensor& y, const EmbeddedRows& a, const EmbeddedRows& b,
                   const Dropout& dropout, const SampleRows& rows, const Tensor& derivative) {
  check("embedding", a.table, y, a.ids);
  if (b.table) check("embedding", b.table, y, b.ids);
  require(!derivative || (dropout && derivative.shape() == y.shape()), "embedding: derivative is ", derivative.shape(),
          ", must be ", y.shape(), ", with dropout");
  require(!dropout || y.rows() == rows.rows(), "embedding: y is ", y.shape(), ", but the ", rows.count(),
          " samples have ", rows.rows(), " rows");
  on_gpu(y, [&]<class T>() {
    cuda::embedding_sum<T>(stream, y.rows(), y.columns(), y, from<T>(a), from<T>(b), dropout, rows, derivative);
  });
  on_cpu(y, [&]<class T>() {
    add_rows<T>(y, a, false);
    if (b.table) add_rows<T>(y, b, true);
    if (derivative) std::ranges::fill(derivative.span<T>(), T{1});
    if (dropout) ops::dropout_both(stream, y, derivative, {}, dropout, rows);
  });
}

void embedding_pair(Stream& stream, const Tensor& y, const Tensor& tables, std::span<const std::int32_t> ids,
                    const Dropout& dropout, const SampleRows& rows) {
  check_pair("embedding", tables, y, ids);
  require(y.rows() == rows.rows(), "embedding: y is ", y.shape(), ", but the ", rows.count(), " samples have ",
          rows.rows(), " rows");
  const std::int64_t columns = tables.columns();
  on_gpu(y, [&]<class T>() {
    cuda::embedding_pair<T>(stream, y.rows(), columns, tables.shape()[1], y, tables, ids.data(), dropout, rows);
  });
  on_cpu(y, [&]<class T>() {
    T* to = y.data<T>();
    for (const std::int32_t id : ids)
      for (const std::int64_t side : {0, 1})
        to = std::copy_n(tables.data<T>() + (side * tables.shape()[1] + id) * columns, columns, to);
    if (dropout) ops::dropout(stream, {y}, y, dropout, rows);
  });
}

void embedding_pair_backward(Stream& stream, const Tensor& dtables, const Tensor& dy, std::span<const std::int32_t> ids,
                             const SampleRows& rows) {
  check_pair("embedding backward", dtables, dy, ids);
  const std::int64_t columns = dtables.columns(), table_rows = dtables.shape()[1];
  on_gpu(dy, [&]<class T>() { cuda::embedding_pair_backward<T>(stream, columns, table_rows, dtables, dy, ids, rows); });
  on_cpu(dy, [&]<class T>() {
    const T* from = dy.data<T>();
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    for (const std::int32_t id : ids.first(static_cast<std::size_t>(rows.used())))
      for (const std::int64_t side : {0, 1}) {
        scale_row(columns, dtables.data<T>() + (side * table_rows + id) * columns, from, T{1}, true);
        from += columns;
      }
  });
}

void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, std::span<const std::int32_t> ids,
                        double scale, std::int64_t padding, std::span<const std::int32_t> places) {
  check("embedding backward", dtable, dy, ids);
  const std::int64_t columns = dtable.columns();
  on_gpu(dy, [&]<class T>() {
    using R = real_t<T>;
    cuda::embedding_backward<T>(stream, dy.rows(), columns, dtable.shape()[0], dtable, dy, ids.data(),
                                static_cast<R>(scale), padding);
  });
  on_cpu(dtable, [&]<class T>() {
    const T factor = static_cast<T>(scale);
    const T* from = dy.data<T>();
    const auto scale_row = cpu::active_elementwise_kernels<T>().scale;
    if (places.empty()) places = ids;
    for (std::size_t m = 0; m < ids.size(); ++m, from += columns)
      if (ids[m] != padding) scale_row(columns, dtable.data<T>() + places[m] * columns, from, factor, true);
  });
}

}  // namespace lockstep::ops
