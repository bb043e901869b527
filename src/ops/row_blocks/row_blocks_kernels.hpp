#pragma once
#include "lockstep/ops/row_blocks.hpp"

/// Kernels of row_blocks.hpp.
namespace lockstep::ops::cuda {

/// T: float | double, or std::uint16_t for halves.
template <class T>
void copy_block(const Stream& stream, T* y, const RowSet& y_rows, const T* x, const RowSet& x_rows,
                std::int64_t columns);

}  // namespace lockstep::ops::cuda
