#include "ops/common/map_cuda.hpp"
#include "ops/common/rotation_cuda.hpp"
#include "rope_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// One block per row, one thread per N pairs. Memory bound: reads and writes the rotated columns once, in place. The
/// table comes from the second-level cache.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(gpu::Earlier earlier, std::int64_t width, int pairs, int half, std::int64_t positions, T* x,
                const real_t<T>* __restrict__ cos, const real_t<T>* __restrict__ sin, real_t<T> sign) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t row = blockIdx.x, angles = row % positions * half;
  for (int p = static_cast<int>(threadIdx.x) * N; p < pairs; p += kThreads * N) {
    const int head = p / half, j = p - head * half;
    T* to = x + row * width + 2 * head * half + j;
    gpu::Pack<R, N> a = gpu::load<N>(to), b = gpu::load<N>(to + half);
    const gpu::Pack<R, N> c = gpu::load<N>(cos + angles + j), s = gpu::load<N>(sin + angles + j);
#pragma unroll
    for (int k = 0; k < N; ++k) rotate(a.at[k], b.at[k], c.at[k], sign * s.at[k]);
    gpu::store(to, a);
    gpu::store(to + half, b);
  }
}

template <class T, int N>
void launch(const Stream& stream, std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half,
            std::int64_t positions, T* x, const real_t<T>* cos, const real_t<T>* sin, real_t<T> sign) {
  gpu::launch(stream, {.grid = rows, .block = kThreads}, rope_kernel<T, N>, width, static_cast<int>(heads * half),
              static_cast<int>(half), positions, x, cos, sin, sign);
}

}  // namespace

template <class T>
void rope(const Stream& stream, std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half,
          std::int64_t positions, T* x, const real_t<T>* cos, const real_t<T>* sin, real_t<T> sign) {
  constexpr int kPack = gpu::pack_size<T>();
  const bool packed = half % kPack == 0 && width % kPack == 0 && gpu::aligned_for<kPack>(x, cos, sin);
  (packed ? launch<T, kPack> : launch<T, 1>)(stream, rows, width, heads, half, positions, x, cos, sin, sign);
}

LOCKSTEP_EACH_STORAGE(rope)

}  // namespace lockstep::ops::cuda
