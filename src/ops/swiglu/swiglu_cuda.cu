#include <algorithm>

#include "lockstep/device/cuda_scratch.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "swiglu_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 128;
/// Columns of one block.
constexpr std::int64_t kBlockColumns = 1 << 14;

/// 1/(1 + exp -a), computed from e = exp(-|a|) <= 1 so that nothing overflows.
template <class R>
__device__ R sigmoid(R a) {
  const R e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
  return a > 0 ? r : e * r;  // mutant-equivalent: e is 1 at 0
}

/// One block per row and kBlockColumns, N columns of a thread at a time. Memory bound: reads gate and up, writes y.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(std::int64_t width, T* __restrict__ y, const T* __restrict__ gate_up) {
  const std::int64_t row = blockIdx.x;
  const T *gate = gate_up + row * 2 * width, *up = gate + width;
  for (std::int64_t c = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * N; c < width;
       c += std::int64_t{gridDim.y} * kThreads * N) {
    gpu::Pack<real_t<T>, N> g = gpu::load<N>(gate + c);
    const gpu::Pack<real_t<T>, N> u = gpu::load<N>(up + c);
#pragma unroll
    for (int k = 0; k < N; ++k) g.at[k] = g.at[k] * sigmoid(g.at[k]) * u.at[k];
    gpu::store(y + row * width + c, g);
  }
}

/// Blocks as above. silu'(g) = s + g s (1 - s). Memory bound: reads and writes gate and up, reads dy.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(std::int64_t width, T* __restrict__ gate_up, const T* __restrict__ dy) {
  using R = real_t<T>;
  const std::int64_t row = blockIdx.x;
  T *gate = gate_up + row * 2 * width, *up = gate + width;
  for (std::int64_t c = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * N; c < width;
       c += std::int64_t{gridDim.y} * kThreads * N) {
    gpu::Pack<R, N> g = gpu::load<N>(gate + c), u = gpu::load<N>(up + c);
    const gpu::Pack<R, N> d = gpu::load<N>(dy + row * width + c);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const R s = sigmoid(g.at[k]), silu = g.at[k] * s;
      g.at[k] = d.at[k] * u.at[k] * (s + silu * (1 - s));
      u.at[k] = d.at[k] * silu;
    }
    gpu::store(gate + c, g);
    gpu::store(up + c, u);
  }
}

template <class T>
bool packed(std::int64_t width, const T* gate_up, const T* y) {
  return width % gpu::pack_size<T>() == 0 && gpu::aligned(gate_up, y);
}

gpu::Grid grid_of(std::int64_t rows, std::int64_t width) {
  return {.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(gpu::ceil_div(width, kBlockColumns))),
          .block = kThreads};
}

}  // namespace

template <class T>
void swiglu_gate_forward(const Stream& stream, std::int64_t rows, std::int64_t width, T* y, const T* gate_up) {
  if (rows * width == 0) return;
  const auto kernel =
      packed(width, gate_up, y) ? swiglu_forward_kernel<T, gpu::pack_size<T>()> : swiglu_forward_kernel<T, 1>;
  gpu::launch(stream, grid_of(rows, width), kernel, width, y, gate_up);
}

template <class T>
void swiglu_forward(const Stream& stream, std::int64_t m, std::int64_t width, std::int64_t k, T* y, T* gate_up,
                    const T* x, const T* weight) {
  if (m * width == 0) return;
  if (gate_up) {
    product<T>(stream, Product::nt, m, 2 * width, k, gate_up, x, weight, false);
    return swiglu_gate_forward(stream, m, width, y, gate_up);
  }
  // Gate and up are not kept: work on rows that stay in the second-level cache until they are combined.
  constexpr std::int64_t kBlockBytes = std::int64_t{24} << 20;
  const std::int64_t most = std::max<std::int64_t>(1, kBlockBytes / (2 * width * static_cast<std::int64_t>(sizeof(T))));
  const std::int64_t blocks = gpu::ceil_div(m, most), rows = gpu::ceil_div(m, blocks);
  const std::size_t bytes = static_cast<std::size_t>(rows * 2 * width) * sizeof(T);
  T* both = reinterpret_cast<T*>(gpu::scratch(stream, kProductScratch + bytes) + kProductScratch);
  for (std::int64_t first = 0; first < m; first += rows) {
    const std::int64_t count = std::min(rows, m - first);
    product<T>(stream, Product::nt, count, 2 * width, k, both, x + first * k, weight, false);
    swiglu_gate_forward(stream, count, width, y + first * width, both);
  }
}

template <class T>
void swiglu_gate_backward(const Stream& stream, std::int64_t rows, std::int64_t width, T* gate_up, const T* dy) {
  if (rows * width == 0) return;
  const auto kernel =
      packed(width, gate_up, dy) ? swiglu_backward_kernel<T, gpu::pack_size<T>()> : swiglu_backward_kernel<T, 1>;
  gpu::launch(stream, grid_of(rows, width), kernel, width, gate_up, dy);
}

LOCKSTEP_EACH_STORAGE(swiglu_forward)
LOCKSTEP_EACH_STORAGE(swiglu_gate_forward)
LOCKSTEP_EACH_STORAGE(swiglu_gate_backward)

}  // namespace lockstep::ops::cuda
