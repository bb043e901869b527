#include "lockstep/ops/row_blocks.hpp"

#include <algorithm>

#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;

/// One warp per row, adjacent lanes on adjacent columns: whole cache lines on both sides if the block has 32 columns or
/// more.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    copy_block_kernel(gpu::Earlier earlier, T* y, RowSet y_rows, const T* x, RowSet x_rows, std::int64_t columns) {
  earlier.wait();
  const std::int64_t i = gpu::warp_row();
  if (i >= y_rows.size()) return;
  T* to = y + y_rows[i] * columns;
  const T* from = x + x_rows[i] * columns;
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) to[c] = from[c];
}

}  // namespace

void copy_block(Stream& stream, const RowBlock& y, const RowBlock& x) {
  const std::int64_t rows = y.rows.size(), columns = y.array.columns();
  require(rows == x.rows.size() && x.array.dtype() == y.array.dtype() && x.array.columns() == columns,
          "copy_block: ", x.rows.size(), " rows of ", x.array.shape(), " to ", rows, " rows of ", y.array.shape(), ", ",
          y.array.dtype());
  const bool gpu = on_gpu(y.array, [&]<class T>() {
    gpu::launch(stream, gpu::warp_per_row(rows), copy_block_kernel<T>, y.array.data<T>(), y.rows, x.array.data<T>(),
                x.rows, columns);
  });
  if (gpu) return;
  const auto row_bytes = static_cast<std::int64_t>(static_cast<std::size_t>(columns) * size_bytes(y.array.dtype()));
  auto* to = static_cast<std::byte*>(y.array.raw());
  const auto* from = static_cast<const std::byte*>(x.array.raw());
#pragma omp parallel for schedule(static) if (rows * columns > (1 << 18))
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(from + x.rows[i] * row_bytes, row_bytes, to + y.rows[i] * row_bytes);
}

}  // namespace lockstep::ops
