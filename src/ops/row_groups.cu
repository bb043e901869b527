#include "lockstep/ops/row_groups.hpp"

#include <algorithm>

#include "lockstep/device/staged_copy.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map.hpp"

namespace lockstep::ops {

namespace row_groups {

/// Row r of y is factor times row r / n of x.
template <class T>
struct Copy {
  T* y;
  const T* x;
  std::int64_t columns, n;
  real_t<T> factor;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(y + at.row * columns, factor * at.get(x + quotient(at.row, n) * columns), accumulate);
  }
};

/// Row r of y is the sum of factor times rows n r, ..., n r + n - 1 of x.
template <class T>
struct Sum {
  T* y;
  const T* x;
  std::int64_t columns, n;
  real_t<T> factor;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const T* from = x + at.row * n * columns;
    auto sum = factor * at.get(from);
    if (accumulate) sum = at.get(y + at.row * columns) + sum;
    for (std::int64_t i = 1; i < n; ++i) sum = sum + factor * at.get(from + i * columns);
    at.put(y + at.row * columns, sum);
  }
};

template <class T>
struct Mask {
  T* y;
  const T* x;
  std::int64_t columns;
  const std::int32_t* ids;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const T* from = x + at.row * columns;
    at.put(y + at.row * columns, ids[at.row] != 0 ? at.get(from) : decltype(at.get(from)){}, accumulate);
  }
};

/// Adds one row to each row.
template <class T>
struct AddToEach {
  T* y;
  const T *x, *table;
  std::int64_t columns;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(y + at.row * columns, at.get(x + at.row * columns) + at.get(table));
  }
};

}  // namespace row_groups

LOCKSTEP_MAPS(row_groups::Copy, row_groups::Sum, row_groups::Mask, row_groups::AddToEach)

#ifndef LOCKSTEP_ISA

namespace {

/// y has n rows of `columns` elements for each row of x.
void copy(Stream& stream, const Target& y, const Tensor& x, std::int64_t columns, std::int64_t n, double factor) {
  map_rows(stream, {y.tensor.size() / std::max<std::int64_t>(columns, 1), columns}, {y.tensor, x}, [&]<class T>() {
    return row_groups::Copy<T>{y.tensor, x, columns, n, static_cast<real_t<T>>(factor), y.accumulate};
  });
}
/// x has n rows of `columns` elements for each row of y.
void sum(Stream& stream, const Target& y, const Tensor& x, std::int64_t columns, std::int64_t n, double factor) {
  map_rows(stream, {y.tensor.size() / std::max<std::int64_t>(columns, 1), columns}, {y.tensor, x}, [&]<class T>() {
    return row_groups::Sum<T>{y.tensor, x, columns, n, static_cast<real_t<T>>(factor), y.accumulate};
  });
}

std::int64_t elements(const Tensor& t) { return t.shape()[0] == 0 ? 0 : t.size() / t.shape()[0]; }

void check_table(const char* what, const Tensor& table, const Tensor& x) {
  require(x.shape().rank() > 0 && (x.size() == 0 || table.size() == elements(x)), what, ": x is ", x.shape(),
          ", table ", table.shape(), "; it must be as large as one sequence");
}
/// Sequences in a group.
std::int64_t group_size(const char* what, const Tensor& y, const Tensor& x) {
  const std::int64_t all = x.shape().rank() > 0 ? x.shape()[0] : 0, groups = y.shape().rank() > 0 ? y.shape()[0] : 0;
  require(groups > 0 ? all % groups == 0 && elements(x) == elements(y) : all == 0, what, ": x is ", x.shape(), ", y ",
          y.shape(), "; sequences must have equal sizes, and x a multiple of the number in y");
  return groups > 0 ? all / groups : 1;
}

}  // namespace

void copy_rows(Stream& stream, Target y, const Tensor& x, std::int64_t n) {
  if (!y) return;
  require(x.shape().rank() == 2 && y.tensor.size() == n * x.size(), "copy_rows: x is ", x.shape(), ", so ", n,
          " copies of each row do not fit into ", y.tensor.shape());
  copy(stream, y, x, x.columns(), n, 1);
}

void sum_rows(Stream& stream, Target y, const Tensor& x, std::int64_t n) {
  if (!y) return;
  require(y.tensor.shape().rank() == 2 && x.size() == n * y.tensor.size(), "sum_rows: y is ", y.tensor.shape(),
          ", so it cannot hold the sums of ", n, " rows each of ", x.shape());
  sum(stream, y, x, y.tensor.columns(), n, 1);
}

void mask_rows(Stream& stream, Target y, const Tensor& x, std::span<const std::int32_t> ids) {
  if (!y) return;
  require(y.tensor.shape() == x.shape() && x.rows() == std::ssize(ids), "mask_rows: x is ", x.shape(), ", y ",
          y.tensor.shape(), ", there are ", ids.size(), " ids");
  map_rows(stream, {x.rows(), x.columns()}, {y.tensor, x}, [&]<class T>() {
    return row_groups::Mask<T>{y.tensor, x, x.columns(), staged_copy(ids.data()), y.accumulate};
  });
}

void add_to_each(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& table) {
  check_table("add_to_each", table, x);
  require(y.shape() == x.shape(), "add_to_each: x is ", x.shape(), ", so y must be too, not ", y.shape());
  map_rows(stream, {x.shape()[0], elements(x)}, {y, x, table}, [&]<class T>() {
    return row_groups::AddToEach<T>{y, x, table, elements(x)};
  });
}

void sum_of_all(Stream& stream, Target table, const Tensor& x) {
  if (!table) return;
  check_table("sum_of_all", table.tensor, x);
  const std::int64_t sequences = x.shape()[0], columns = table.tensor.size();
  const bool gpu = on_gpu(x, [&]<class T>() {
    gpu::column_sums(stream, sequences, columns, gpu::ColumnSums<real_t<T>, 1>{{table.tensor}, {table.accumulate}},
                     gpu::Plain<T>{x, columns});
  });
  if (gpu) return;
  if (sequences == 0 && !table.accumulate) return fill_zero(stream, table.tensor);
  if (sequences > 0) sum(stream, table, x, columns, sequences, 1);
}

void mean_of_groups(Stream& stream, Target y, const Tensor& x) {
  if (!y) return;
  const std::int64_t n = group_size("mean_of_groups", y.tensor, x);
  sum(stream, y, x, elements(y.tensor), n, 1 / static_cast<double>(n));
}

void spread_mean(Stream& stream, Target x, const Tensor& y) {
  if (!x) return;
  const std::int64_t n = group_size("spread_mean", y, x.tensor);
  copy(stream, x, y, elements(y), n, 1 / static_cast<double>(n));
}

#endif

}  // namespace lockstep::ops
