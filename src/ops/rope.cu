#include "lockstep/ops/rope.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Rotates the first heads * 2 * half columns of each row of `width` elements. Row m has position m % positions. sign
/// -1 rotates back.
template <class T>
using RopeKernel = void (*)(std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half,
                            std::int64_t positions, T* x, const T* cos, const T* sin, T sign);

LOCKSTEP_KERNELS(RopeKernel, rope_kernel)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void rotate(std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half, std::int64_t positions, T* x,
            const T* cos, const T* sin, T sign) {
  for (std::int64_t m = 0; m < rows; ++m) {
    const T *c = cos + m % positions * half, *s = sin + m % positions * half;
    for (std::int64_t j = 0; j < half; j += kLanes<T>) {
      const Lanes<T> lanes = lanes_at<T>(j, half);
      const Vec<T> cv = load(c + j, lanes), sv = load(s + j, lanes) * splat(sign);
      for (std::int64_t h = 0; h < heads; ++h) {
        T *a = x + m * width + h * 2 * half + j, *b = a + half;
        const Vec<T> av = load(a, lanes), bv = load(b, lanes);
        store(a, fma(av, cv, -(bv * sv)), lanes);
        store(b, fma(bv, cv, av * sv), lanes);
      }
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(RopeKernel, rope_kernel, rotate<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <cmath>

#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/rotation_cuda.hpp"

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

}  // namespace lockstep::ops::cuda

namespace lockstep::ops {

void rope_table(const Tensor& cos, const Tensor& sin, double theta) {
  require(cos.shape().rank() == 2 && cos.shape() == sin.shape(), "rope_table: cos is ", cos.shape(), ", sin ",
          sin.shape(), "; both must be (T, d/2)");
  const HostView to_cos(cos, HostView::Access::write), to_sin(sin, HostView::Access::write);
  visit_float(cos.dtype(), [&]<class T>() {
    const std::int64_t half = cos.shape()[1];
    for (std::int64_t t = 0; t < cos.shape()[0]; ++t)
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle =
            static_cast<double>(t) * std::pow(theta, -static_cast<double>(j) / static_cast<double>(half));
        to_cos->data<T>()[t * half + j] = static_cast<T>(std::cos(angle));
        to_sin->data<T>()[t * half + j] = static_cast<T>(std::sin(angle));
      }
  });
}

void rope(Stream& stream, const Tensor& qkv, const Tensor& cos, const Tensor& sin, std::int64_t heads,
          Rotation rotation) {
  require(qkv.shape().rank() == 3 && cos.shape().rank() == 2 && cos.shape() == sin.shape() &&
              qkv.shape()[1] == cos.shape()[0] && heads * 2 * cos.shape()[1] <= qkv.columns(),
          "rope: qkv is ", qkv.shape(), ", the table ", cos.shape(), " and ", sin.shape(), ", heads ", heads,
          "; these do not fit together");
  const std::int64_t positions = cos.shape()[0], half = cos.shape()[1];
  const int sign = rotation == Rotation::forward ? 1 : -1;
  on_gpu(qkv, [&]<class T>() {
    using R = real_t<T>;
    cuda::rope<T>(stream, qkv.rows(), qkv.columns(), heads, half, positions, qkv, cos, sin, static_cast<R>(sign));
  });
  on_cpu(qkv, [&]<class T>() {
    cpu::active_rope_kernel<T>()(qkv.rows(), qkv.columns(), heads, half, positions, qkv, cos, sin,
                                 static_cast<T>(sign));
  });
}

}  // namespace lockstep::ops

#endif
