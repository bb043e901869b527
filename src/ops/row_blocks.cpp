#include "lockstep/ops/row_blocks.hpp"

#include <algorithm>

#include "lockstep/device/has_cuda.hpp"
#include "row_blocks_cuda.hpp"

namespace lockstep::ops {

namespace {

template <class T>
void copy(Stream& stream, const RowBlock& y, const RowBlock& x, std::int64_t columns, BlockWrite write) {
  T* to = static_cast<T*>(y.array.raw()) + y.column;
  const T* from = static_cast<const T*>(x.array.raw()) + x.column;
  const std::int64_t to_stride = y.array.columns(), from_stride = x.array.columns();
  if constexpr (kHasCuda) {
    if (y.array.device().is_cuda())
      return cuda::copy_block<T>(stream, {to, to_stride, y.rows}, {from, from_stride, x.rows}, columns, write);
  }
#pragma omp parallel for schedule(static) if (y.rows.size() * columns > (1 << 18))
  for (std::int64_t i = 0; i < y.rows.size(); ++i) {
    T* row = to + y.rows[i] * to_stride;
    const T* source = from + x.rows[i] * from_stride;
    if (write == BlockWrite::store) {
      std::copy_n(source, columns, row);
    } else {
      for (std::int64_t c = 0; c < columns; ++c) row[c] = static_cast<T>(row[c] + source[c]);
    }
  }
}

}  // namespace

void copy_block(Stream& stream, const RowBlock& y, const RowBlock& x, std::int64_t columns, BlockWrite write) {
  const DType dtype = y.array.dtype();
  const bool half = dtype == DType::bf16 || dtype == DType::f16;
  require(y.rows.size() == x.rows.size() && x.array.dtype() == dtype && y.column >= 0 && x.column >= 0 &&
              y.column + columns <= y.array.columns() && x.column + columns <= x.array.columns() &&
              !(half && write == BlockWrite::add),
          "copy_block: ", columns, " columns of ", x.rows.size(), " rows of ", x.array.shape(), " from column ",
          x.column, " to ", y.rows.size(), " rows of ", y.array.shape(), " from column ", y.column, ", ", dtype);
  if (half) return copy<std::uint16_t>(stream, y, x, columns, write);
  visit_float(dtype, [&]<class T>() { copy<T>(stream, y, x, columns, write); });
}

}  // namespace lockstep::ops
