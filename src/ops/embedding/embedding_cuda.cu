#include "embedding_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "ops/common/scatter_rows_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kRowsPerBlock = 8;

/// One warp per row. Memory bound. Each id is read once, from host memory.
template <class T>
__global__ void __launch_bounds__(gpu::kWarp* kRowsPerBlock)
    embedding_forward_kernel(std::int64_t m, std::int64_t c, T* __restrict__ y, const T* __restrict__ table,
                             const std::int32_t* __restrict__ ids, real_t<T> scale) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (row >= m) return;
  const T* from = table + std::int64_t{ids[row]} * c;
  for (std::int64_t column = threadIdx.x; column < c; column += gpu::kWarp)
    gpu::store(y + row * c + column, scale * gpu::load(from + column));
}

template <class T>
struct Scaled {
  const T* dy;
  std::int64_t columns;
  real_t<T> scale;
  __device__ real_t<T> value(std::int64_t row, std::int64_t column) const {
    return scale * gpu::load(dy + row * columns + column);
  }
};

}  // namespace

template <class T>
void embedding_forward(const Stream& stream, std::int64_t m, std::int64_t c, T* y, const T* table,
                       const std::int32_t* ids, real_t<T> scale) {
  if (m == 0) return;
  gpu::launch(stream,
              {.grid = static_cast<unsigned>(gpu::ceil_div<std::int64_t>(m, kRowsPerBlock)),
               .block = dim3(gpu::kWarp, kRowsPerBlock)},
              embedding_forward_kernel<T>, m, c, y, table, ids, scale);
}

template <class T>
void embedding_backward(const Stream& stream, std::int64_t m, std::int64_t c, std::int64_t r, real_t<T>* dtable,
                        const T* dy, const std::int32_t* ids, real_t<T> scale, std::int64_t padding) {
  gpu::scatter_rows(stream, m, c, r, dtable, ids, padding, Scaled<T>{dy, c, scale});
}

LOCKSTEP_EACH_STORAGE(embedding_forward)
LOCKSTEP_EACH_STORAGE(embedding_backward)

}  // namespace lockstep::ops::cuda
