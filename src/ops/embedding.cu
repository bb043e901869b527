#include "lockstep/ops/embedding.hpp"

#include <algorithm>

#include "lockstep/device/staged_copy.hpp"
#include "lockstep/ops/dropout.hpp"
#include "ops/common/drawn_map_cuda.hpp"
#include "ops/common/map.hpp"
#include "ops/common/row_kernels.hpp"
#include "ops/common/scatter_rows_cuda.hpp"

namespace lockstep::ops {

namespace embedding {

/// Rows of a table; null: none.
template <class T>
struct From {
  const T* table;
  const std::int32_t* ids;
  real_t<T> scale;
};

/// Row m of y is the sum of a row of two tables.
template <class T>
struct Sum {
  T* y;
  From<T> a, b;
  std::int64_t columns;
  LOCKSTEP_MAP const T* reads(std::int64_t row) const { return a.table + a.ids[row] * columns; }
  LOCKSTEP_MAP auto value(const auto& at) const {
    const auto sum = a.scale * at.get(reads(at.row));
    return b.table != nullptr ? sum + b.scale * at.get(b.table + b.ids[at.row] * columns) : sum;
  }
  LOCKSTEP_MAP void operator()(const auto& at) const { at.put(y + at.row * columns, value(at)); }
};

/// Rows 2 m and 2 m + 1 of y are row ids_m of two tables.
template <class T>
struct Pair {
  T* y;
  const T* tables;
  const std::int32_t* ids;
  std::int64_t columns, table_rows;
  LOCKSTEP_MAP auto value(const auto& at) const {
    return at.get(tables + ((at.row % 2) * table_rows + ids[at.row / 2]) * columns);
  }
  LOCKSTEP_MAP void operator()(const auto& at) const { at.put(y + at.row * columns, value(at)); }
};

}  // namespace embedding

LOCKSTEP_MAPS(embedding::Sum, embedding::Pair)

#ifndef LOCKSTEP_ISA

namespace {

/// y and derivative, unless that is null, with dropout, for gpu::drawn_map(). Rows of tables come from L2.
template <class T, class Rows>
struct Dropped {
  Rows rows;
  T* derivative;
  using R = real_t<T>;
  template <int N>
  __device__ gpu::Pack<R, N> read(std::int64_t i) const {
    const std::int64_t row = gpu::quotient(i, rows.columns);
    return rows.value(gpu::At<N>{row, i - row * rows.columns});
  }
  template <int N>
  __device__ void write(std::int64_t i, gpu::Pack<R, N> x, const gpu::Keep<R>& keep) const {
    gpu::Pack<R, N> kept;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x.at[k] = keep(k, x.at[k]);
      kept.at[k] = keep(k, R{1});
    }
    gpu::store(rows.y + i, x);
    if (derivative != nullptr) gpu::store(derivative + i, kept);
  }
  __device__ void behind(std::int64_t i) const {
    gpu::store(rows.y + i, R{0});
    if (derivative != nullptr) gpu::store(derivative + i, R{0});
  }
};

/// The gradients of both tables: those of the first for all rows, then those of the second.
template <class R>
struct Halves {
  std::int64_t rows;
  __device__ gpu::RowUse<R> operator()(std::int64_t m) const { return {m < rows ? 2 * m : 2 * (m - rows) + 1, R{1}}; }
};

template <class R>
struct Scaled {
  R scale;
  __device__ gpu::RowUse<R> operator()(std::int64_t m) const { return {m, scale}; }
};

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
embedding::From<T> from(const EmbeddedRows& rows) {
  return {rows.table, staged_copy(rows.ids.data()), static_cast<real_t<T>>(rows.scale)};
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
  const std::int64_t columns = y.columns();
  const auto sum = [&]<class T>() { return embedding::Sum<T>{y, from<T>(a), from<T>(b), columns}; };
  const bool dropped =
      dropout && on_gpu(y, [&]<class T>() {
        gpu::drawn_map<real_t<T>>(stream, columns, columns, dropout, rows,
                                  Dropped<T, embedding::Sum<T>>{sum.template operator()<T>(), derivative}, y.data<T>(),
                                  derivative.data<T>(), a.table.data<T>(), b.table.data<T>());
      });
  if (dropped) return;
  map_rows(stream, {y.rows(), columns}, {y, a.table, b.table}, sum);
  if (!dropout) return;
  if (derivative) on_cpu(y, [&]<class T>() { std::ranges::fill(derivative.span<T>(), T{1}); });
  ops::dropout_both(stream, y, derivative, {}, dropout, rows);
}

void embedding_pair(Stream& stream, const Tensor& y, const Tensor& tables, std::span<const std::int32_t> ids,
                    const Dropout& dropout, const SampleRows& rows) {
  check_pair("embedding", tables, y, ids);
  require(y.rows() == rows.rows(), "embedding: y is ", y.shape(), ", but the ", rows.count(), " samples have ",
          rows.rows(), " rows");
  const std::int64_t columns = tables.columns();
  const auto pair = [&]<class T>() {
    return embedding::Pair<T>{y, tables, staged_copy(ids.data()), columns, tables.shape()[1]};
  };
  const bool dropped =
      dropout && on_gpu(y, [&]<class T>() {
        gpu::drawn_map<real_t<T>>(stream, 2 * columns, columns, dropout, rows,
                                  Dropped<T, embedding::Pair<T>>{pair.template operator()<T>(), nullptr}, y.data<T>(),
                                  tables.data<T>());
      });
  if (dropped) return;
  map_rows(stream, {2 * y.rows(), columns}, {y, tables}, pair);
  if (dropout) ops::dropout(stream, {y}, y, dropout, rows);
}

void embedding_pair_backward(Stream& stream, const Tensor& dtables, const Tensor& dy, std::span<const std::int32_t> ids,
                             const SampleRows& rows) {
  check_pair("embedding backward", dtables, dy, ids);
  const std::int64_t columns = dtables.columns(), table_rows = dtables.shape()[1];
  on_gpu(dy, [&]<class T>() {
    gpu::scatter_rows<T>(stream, {ids, ids}, columns, 2 * table_rows, dtables, -1, dy,
                         Halves<real_t<T>>{std::ssize(ids)}, table_rows,
                         rows.capacity > 0 ? staged_copy(rows.offsets.data() + rows.count()) : nullptr);
  });
  on_cpu(dy, [&]<class T>() {
    const T* from = dy.data<T>();
    const auto add_row = cpu::active_row_kernels<T>().add;
    for (const std::int32_t id : ids.first(rows.used()))
      for (const std::int64_t side : {0, 1}) {
        add_row(columns, dtables.data<T>() + (side * table_rows + id) * columns, from, T{1});
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
    gpu::scatter_rows<T>(stream, {ids, {}}, columns, dtable.shape()[0], dtable, padding, dy,
                         Scaled<R>{static_cast<R>(scale)});
  });
  on_cpu(dtable, [&]<class T>() {
    const T factor = static_cast<T>(scale);
    const T* from = dy.data<T>();
    const auto add_row = cpu::active_row_kernels<T>().add;
    if (places.empty()) places = ids;
    for (std::size_t m = 0; m < ids.size(); ++m, from += columns)
      if (ids[m] != padding) add_row(columns, dtable.data<T>() + places[m] * columns, from, factor);
  });
}

#endif

}  // namespace lockstep::ops
