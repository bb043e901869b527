#pragma once
#include "lockstep/ops/row_blocks.hpp"

/// Kernels of row_blocks.hpp. Pointers are the GPU's.
namespace lockstep::ops::cuda {

/// The elements of a block: where its first column begins, and how many lie between rows.
template <class T>
struct BlockOf {
  T* first;
  std::int64_t stride;
  RowSet rows;
};

/// T: float | double; std::uint16_t for what is stored only.
template <class T>
void copy_block(const Stream& stream, const BlockOf<T>& y, const BlockOf<const T>& x, std::int64_t columns,
                BlockWrite write);

}  // namespace lockstep::ops::cuda
