#include "lockstep/ops/row_blocks.hpp"

#include <algorithm>

#include "ops/common/on_gpu.hpp"
#include "row_blocks_kernels.hpp"

namespace lockstep::ops {

namespace {

template <class T>
void copy(Stream& stream, const RowBlock& y, const RowBlock& x) {
  T* to = static_cast<T*>(y.array.raw());
  const T* from = static_cast<const T*>(x.array.raw());
  const std::int64_t columns = y.array.columns();
  if (on_gpu(y.array.device(), [&] { cuda::copy_block<T>(stream, to, y.rows, from, x.rows, columns); })) return;
#pragma omp parallel for schedule(static) if (y.rows.size() * columns > (1 << 18))
  for (std::int64_t i = 0; i < y.rows.size(); ++i)
    std::copy_n(from + x.rows[i] * columns, columns, to + y.rows[i] * columns);
}

}  // namespace

void copy_block(Stream& stream, const RowBlock& y, const RowBlock& x) {
  const DType dtype = y.array.dtype();
  require(y.rows.size() == x.rows.size() && x.array.dtype() == dtype && y.array.columns() == x.array.columns(),
          "copy_block: ", x.rows.size(), " rows of ", x.array.shape(), " to ", y.rows.size(), " rows of ",
          y.array.shape(), ", ", dtype);
  if (dtype == DType::bf16 || dtype == DType::f16) return copy<std::uint16_t>(stream, y, x);
  visit_float(dtype, [&]<class T>() { copy<T>(stream, y, x); });
}

}  // namespace lockstep::ops
