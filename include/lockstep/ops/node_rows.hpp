#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Functions on some rows of arrays with one row for each node. The kernels must be able to read row numbers and
/// offsets. On a GPU, negative row numbers of a list that is gathered or scattered are padding: nothing is stored.

/// The divisor of a row when it is gathered.
enum class RowScale : std::uint8_t {
  none,
  norm,  ///< max(|x|, 1e-12)
};

/// Gathers rows and scales them: columns [column, column + C) of row i of y become row rows_i of x.
///
/// shapes   x (N, C); y (rows.size(), at least column + C)
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal; norms in f64
/// errors   Error if the shapes do not fit
void gather_node_rows(Stream&, const Tensor& y, std::int64_t column, const Tensor& x,
                      std::span<const std::int32_t> rows, RowScale scale);

/// The gradient of gather_node_rows: adds to row rows_i of dx the gradient from columns [column, column + C) of row i
/// of dy. `rows` lists each row once.
///
///   none  dx += dy;   norm  n = x / |x|,  dx += (dy - n (n . dy)) / |x|
void scatter_node_rows(Stream&, const Tensor& dx, const Tensor& dy, std::int64_t column, const Tensor& x,
                       std::span<const std::int32_t> rows, RowScale scale);

/// Sets rows of x to 0.
///
/// dtypes   f32 | f64
void clear_node_rows(Stream&, const Tensor& x, const RowSet& rows);

/// Rounds rows of x to halves, to nearest, ties to even, and stores them in y.
///
/// shapes   equal
/// dtypes   y bf16 | f16, x f32
/// errors   Error if shapes or dtypes do not fit
void round_node_rows(Stream&, const Tensor& y, const Tensor& x, const RowSet& rows);

/// Sums rows by segments: y_nc = sum over u in [ptr_n, ptr_(n+1)), ascending, of x_(r, column + c), where the row r is
/// place_u, or u if `place` is empty.
///
/// shapes   y (N, C); x (any, at least column + C); ptr (N + 1)
/// dtypes   f32 | f64, equal
/// errors   Error naming the shapes if they do not fit
void sum_node_rows(Stream&, const Tensor& y, const Tensor& x, std::int64_t column, std::span<const std::int64_t> ptr,
                   std::span<const std::int64_t> place);

}  // namespace lockstep::ops
