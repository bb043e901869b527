#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Functions on arrays with one value for each entry of a sparse matrix with a symmetric pattern. The kernels must be
/// able to read the permutation.

/// The values of the transposed matrix: y_e = x_(opposite_e), where entry opposite_e is entry e with row and column
/// swapped.
///
/// shapes   y, x, opposite (nnz)
/// dtypes   f32 | f64, equal
/// errors   Error if the sizes differ
void transpose_edges(Stream&, const Tensor& y, const Tensor& x, std::span<const std::int64_t> opposite);

/// Edge dropout: y_e = 0 where draw e of dropout.draws(0), 32 bits, is below rate 2^32, else x_e / (1 - rate).
///
/// shapes   y, x (nnz)
/// dtypes   f32 | f64, equal
/// errors   Error if the sizes differ
void drop_edges(Stream&, const Tensor& y, const Tensor& x, const Dropout& dropout);

}  // namespace lockstep::ops
