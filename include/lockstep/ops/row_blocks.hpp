#pragma once
#include <cstdint>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Some rows of an array, from a column on. The list of rows lies where the kernels can read it.
struct RowBlock {
  Tensor array;
  RowSet rows;
  std::int64_t column = 0;
};

/// What a block becomes where it is written.
enum class BlockWrite : std::uint8_t { store, add };

/// Copies `columns` columns of rows from one array to another, in the order of both row sets; packs and unpacks what
/// travels between ranks:
///
///   y_(yrow_i, ycolumn + c) (+)= x_(xrow_i, xcolumn + c),   c in [0, columns)
///
/// Each row of y is named once.
///
/// shapes   as many rows in y as in x; both blocks within their arrays' columns
/// dtypes   f32 | f64 | bf16 | f16, equal; bf16 and f16 are stored only
/// errors   Error naming the shapes if they do not fit
void copy_block(Stream&, const RowBlock& y, const RowBlock& x, std::int64_t columns,
                BlockWrite write = BlockWrite::store);

}  // namespace lockstep::ops
