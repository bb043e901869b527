#pragma once
#include <cstdint>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Some rows of an array. The kernels must be able to read a list of rows.
struct RowBlock {
  Tensor array;
  RowSet rows;
};

/// Copies rows from one array to another, in the order of both row sets. Packs and unpacks data for transfers between
/// ranks:
///
///   y_(yrow_i, c) = x_(xrow_i, c)
///
/// The row set of y lists each row once.
///
/// shapes   equally many rows and columns in y and x
/// dtypes   f32 | f64 | bf16 | f16, equal
/// errors   Error naming the shapes if they do not fit
void copy_block(Stream&, const RowBlock& y, const RowBlock& x);

}  // namespace lockstep::ops
