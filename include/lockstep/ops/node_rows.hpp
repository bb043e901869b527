#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Some rows of arrays that have a row for each node. Row numbers and offsets lie where the kernels can read them.

/// What a row is divided by on its way.
enum class RowScale : std::uint8_t {
  none,
  norm,  ///< max(|x|, 1e-12)
};

/// Columns [column, column + C) of row i of y become row rows_i of x, scaled.
///
/// shapes   x (N, C); y (rows.size(), at least column + C)
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal; norms in f64
/// errors   Error if the shapes do not fit
void gather_node_rows(Stream&, const Tensor& y, std::int64_t column, const Tensor& x,
                      std::span<const std::int32_t> rows, RowScale scale);

/// The transpose of that: adds to row rows_i of dx what columns [column, column + C) of row i of dy, the gradient of y,
/// are to x. Each row is named once.
///
///   none  dx += dy;   norm  n = x / |x|,  dx += (dy - n (n . dy)) / |x|
void scatter_node_rows(Stream&, const Tensor& dx, const Tensor& dy, std::int64_t column, const Tensor& x,
                       std::span<const std::int32_t> rows, RowScale scale);

/// These rows become 0. dtypes  f32 | f64
void clear_node_rows(Stream&, const Tensor& x, const RowSet& rows);

/// These rows of y become x rounded to nearest, ties to even. shapes  equal; dtypes  y bf16 | f16, x f32
void round_node_rows(Stream&, const Tensor& y, const Tensor& x, const RowSet& rows);

/// y_nc = sum over u in [ptr_n, ptr_(n+1)), ascending, of x_(place_u, column + c); without `place`, of x_(u, column + c).
///
/// shapes   y (N, C); x (any, at least column + C); ptr (N + 1)
/// dtypes   f32 | f64, equal
void sum_node_rows(Stream&, const Tensor& y, const Tensor& x, std::int64_t column, std::span<const std::int64_t> ptr,
                   std::span<const std::int64_t> place);

}  // namespace lockstep::ops
