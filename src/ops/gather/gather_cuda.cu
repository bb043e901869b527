#include "gather_kernels.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kRowsPerBlock = 8;

/// One warp per row copies it in the largest units that the alignment allows. Memory bound.
template <class Unit>
__global__ void __launch_bounds__(gpu::kWarp* kRowsPerBlock)
    gather_rows_kernel(std::int64_t count, std::int64_t units, Unit* __restrict__ to, const Unit* __restrict__ from,
                       const std::int64_t* __restrict__ rows) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (row >= count) return;
  const Unit* source = from + rows[row] * units;
  for (std::int64_t i = threadIdx.x; i < units; i += gpu::kWarp) to[row * units + i] = source[i];
}

}  // namespace

void gather_rows(const Stream& stream, std::int64_t count, std::size_t size_bytes, void* to, const void* from,
                 const std::int64_t* rows) {
  const gpu::Grid grid{.grid = static_cast<unsigned>(gpu::ceil_div<std::int64_t>(count, kRowsPerBlock)),
                       .block = dim3(gpu::kWarp, kRowsPerBlock)};
  const auto copy = [&]<class Unit>(Unit) {
    gpu::launch(stream, grid, gather_rows_kernel<Unit>, count, static_cast<std::int64_t>(size_bytes / sizeof(Unit)),
                static_cast<Unit*>(to), static_cast<const Unit*>(from), rows);
  };
  const std::uintptr_t all = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | size_bytes;
  if (all % 16 == 0)
    copy(gpu::Pack<std::uint32_t, 4>{});
  else if (all % 4 == 0)
    copy(std::uint32_t{});
  else
    copy(std::uint8_t{});
}

}  // namespace lockstep::ops::cuda
