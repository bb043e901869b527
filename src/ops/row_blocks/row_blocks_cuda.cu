#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "row_blocks_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
constexpr int kRowsPerBlock = 8;

/// One warp per row, adjacent lanes on adjacent columns: whole cache lines on both sides if the block has 32 columns or
/// more.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock)
    copy_block_kernel(T* y, RowSet y_rows, const T* x, RowSet x_rows, std::int64_t columns) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (i >= y_rows.size()) return;
  T* to = y + y_rows[i] * columns;
  const T* from = x + x_rows[i] * columns;
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) to[c] = from[c];
}

}  // namespace

template <class T>
void copy_block(const Stream& stream, T* y, const RowSet& y_rows, const T* x, const RowSet& x_rows,
                std::int64_t columns) {
  if (y_rows.size() == 0 || columns == 0) return;
  gpu::launch(stream, {.grid = gpu::ceil_div(y_rows.size(), kRowsPerBlock), .block = {kWarp, kRowsPerBlock}},
              copy_block_kernel<T>, y, y_rows, x, x_rows, columns);
}

LOCKSTEP_EACH_FLOAT(copy_block)
template void copy_block(const Stream&, std::uint16_t*, const RowSet&, const std::uint16_t*, const RowSet&,
                         std::int64_t);

}  // namespace lockstep::ops::cuda
