#pragma once
#include <cstdint>
#include <span>

#include "lockstep/base/philox.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// One value for each entry of a sparse matrix of symmetric pattern. Permutations lie where the kernels can read them.

/// The values of the transposed matrix: y_e = x_(opposite_e), where entry opposite_e is entry e the other way round.
///
/// shapes   y, x, opposite (nnz)
/// dtypes   f32 | f64, equal
void transpose_edges(Stream&, const Tensor& y, const Tensor& x, std::span<const std::int64_t> opposite);

/// Dropout of edges: y_e = 0 where draw e is below rate 2^32, else x_e / (1 - rate).
///
/// shapes   y, x (nnz)
/// dtypes   f32 | f64, equal
void drop_edges(Stream&, const Tensor& y, const Tensor& x, double rate, const Philox& draws);

}  // namespace lockstep::ops
