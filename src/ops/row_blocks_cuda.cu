#include "lockstep/device/cuda_launch.hpp"
#include "row_blocks_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
constexpr int kRowsPerBlock = 8;

/// A warp per row, lanes beside one another: whole lines of memory on both sides when the block has 32 columns or more.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock)
    copy_block_kernel(BlockOf<T> y, BlockOf<const T> x, std::int64_t columns, bool add) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (i >= y.rows.size()) return;
  T* to = y.first + y.rows[i] * y.stride;
  const T* from = x.first + x.rows[i] * x.stride;
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) to[c] = add ? static_cast<T>(to[c] + from[c]) : from[c];
}

}  // namespace

template <class T>
void copy_block(const Stream& stream, const BlockOf<T>& y, const BlockOf<const T>& x, std::int64_t columns,
                BlockWrite write) {
  if (y.rows.size() == 0 || columns == 0) return;
  gpu::launch(stream,
              {.grid = static_cast<unsigned>(gpu::ceil_div<std::int64_t>(y.rows.size(), kRowsPerBlock)),
               .block = dim3(kWarp, kRowsPerBlock)},
              copy_block_kernel<T>, y, x, columns, write == BlockWrite::add);
}

template void copy_block(const Stream&, const BlockOf<float>&, const BlockOf<const float>&, std::int64_t, BlockWrite);
template void copy_block(const Stream&, const BlockOf<double>&, const BlockOf<const double>&, std::int64_t, BlockWrite);
template void copy_block(const Stream&, const BlockOf<std::uint16_t>&, const BlockOf<const std::uint16_t>&,
                         std::int64_t, BlockWrite);

}  // namespace lockstep::ops::cuda
