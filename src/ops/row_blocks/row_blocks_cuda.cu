#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "row_blocks_kernels.hpp"

namespace lockstep::ops::cuda {
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

template <class T>
void copy_block(const Stream& stream, T* y, const RowSet& y_rows, const T* x, const RowSet& x_rows,
                std::int64_t columns) {
  gpu::launch(stream, gpu::warp_per_row(y_rows.size()), copy_block_kernel<T>, y, y_rows, x, x_rows, columns);
}

LOCKSTEP_EACH_FLOAT(copy_block)
template void copy_block(const Stream&, std::uint16_t*, const RowSet&, const std::uint16_t*, const RowSet&,
                         std::int64_t);

}  // namespace lockstep::ops::cuda
