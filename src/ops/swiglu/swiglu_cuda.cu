#include <algorithm>

#include "lockstep/device/cuda_fast_math.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "swiglu_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kMostThreads = 256;
/// Columns of one block.
constexpr std::int64_t kBlockColumns = 1 << 14;

/// 1/(1 + exp -a), to be rounded to T. A half result may be 0 because the exponential overflows; wider types use
/// e = exp(-|a|) <= 1, which loses no digit.
template <class T>
__device__ real_t<T> sigmoid(real_t<T> a) {
  using R = real_t<T>;
  if constexpr (sizeof(T) == 2) return gpu::reciprocal_for<T>(1 + gpu::exp2_for<T>(-gpu::kLog2E<R> * a));
  const R e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
  return a > 0 ? r : e * r;
}

/// Calls f(column) for the columns of the block's row, N at a time.
template <int N, class F>
__device__ void each_column(std::int64_t columns, const F& f) {
  for (std::int64_t c = std::int64_t{threadIdx.x} * N; c < columns; c += std::int64_t{blockDim.x} * N) f(c);
}

/// One block per row and kBlockColumns, N columns of a thread at a time. Memory bound: reads gate and up, writes y, and
/// with a norm reads x (again from the first-level cache) and writes z. A row's scale commutes with the product, so
/// gate and up are scaled here.
template <class T, int N>
__global__ void __launch_bounds__(kMostThreads)
    swiglu_forward_kernel(gpu::Earlier earlier, std::int64_t width, T* __restrict__ y, const T* __restrict__ gate_up,
                          RowNorm<T> norm) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t row = blockIdx.x;
  R scale = 1;
  if (norm.x != nullptr) {
    const std::int64_t begin = row * norm.columns;
    R squares = 0;
    each_column<N>(norm.columns, [&](std::int64_t c) {
      const gpu::Pack<R, N> v = gpu::load<N>(norm.x + begin + c);
#pragma unroll
      for (int k = 0; k < N; ++k) squares += v.at[k] * v.at[k];
    });
    scale = 1 / std::sqrt(gpu::block_reduce(squares) / static_cast<R>(norm.columns) + norm.eps);
    if (blockIdx.y == 0) {
      each_column<N>(norm.columns, [&](std::int64_t c) {
        gpu::Pack<R, N> v = gpu::load<N>(norm.x + begin + c);
#pragma unroll
        for (int k = 0; k < N; ++k) v.at[k] *= scale;
        gpu::store(norm.z + begin + c, v);
      });
      if (norm.rstd != nullptr && threadIdx.x == 0) norm.rstd[row] = scale;
    }
  }
  const T *gate = gate_up + row * 2 * width, *up = gate + width;
  for (std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; c < width;
       c += std::int64_t{gridDim.y} * blockDim.x * N) {
    gpu::Pack<R, N> g = gpu::load<N>(gate + c);
    const gpu::Pack<R, N> u = gpu::load<N>(up + c);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const R gated = scale * g.at[k];
      g.at[k] = gated * sigmoid<T>(gated) * (scale * u.at[k]);
    }
    gpu::store(y + row * width + c, g);
  }
}

/// Blocks as above. silu'(g) = s + g s (1 - s). Memory bound: reads and writes gate and up, reads dy.
///
/// With a norm the block has the whole row, and the product with the weight completes dx:
///
///   dx = rstd (dz' - z mean_c z_c dz'_c)      dz' = dz + dgate_up weight
///      = rstd (dz - z m) + (rstd dgate_up) weight,   m = mean_c z_c dz_c + sum_i dgate_up_i gate_up_i / columns
///
/// because z weight^T = gate_up. So gate_up becomes rstd dgate_up, whose product with x is dweight, too. Reads x and dz
/// once (again from the first-level cache), writes dx.
template <class T, int N>
__global__ void __launch_bounds__(kMostThreads)
    swiglu_backward_kernel(gpu::Earlier earlier, std::int64_t width, T* __restrict__ gate_up, const T* __restrict__ dy,
                           RowSlope<T> norm) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t row = blockIdx.x;
  const R scale = norm.x != nullptr ? norm.rstd[row] : R{1};
  T *gate = gate_up + row * 2 * width, *up = gate + width;
  R products = 0;
  for (std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; c < width;
       c += std::int64_t{gridDim.y} * blockDim.x * N) {
    gpu::Pack<R, N> g = gpu::load<N>(gate + c), u = gpu::load<N>(up + c);
    const gpu::Pack<R, N> d = gpu::load<N>(dy + row * width + c);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const R gated = scale * g.at[k], raised = scale * u.at[k], s = sigmoid<T>(gated), silu = gated * s;
      const R dg = d.at[k] * raised * (s + silu * (1 - s)), du = d.at[k] * silu;
      products += dg * gated + du * raised;
      g.at[k] = scale * dg;
      u.at[k] = scale * du;
    }
    gpu::store(gate + c, g);
    gpu::store(up + c, u);
  }
  if (norm.dx == nullptr) return;
  const std::int64_t begin = row * norm.columns;
  each_column<N>(norm.columns, [&](std::int64_t c) {
    const gpu::Pack<R, N> v = gpu::load<N>(norm.x + begin + c), d = gpu::load<N>(norm.dz + begin + c);
#pragma unroll
    for (int k = 0; k < N; ++k) products += scale * v.at[k] * d.at[k];
  });
  const R mean = gpu::block_reduce(products) / static_cast<R>(norm.columns);
  each_column<N>(norm.columns, [&](std::int64_t c) {
    const gpu::Pack<R, N> v = gpu::load<N>(norm.x + begin + c);
    const gpu::Pack<R, N> before = norm.add ? gpu::load<N>(norm.dx + begin + c) : gpu::Pack<R, N>{};
    gpu::Pack<R, N> d = gpu::load<N>(norm.dz + begin + c);
#pragma unroll
    for (int k = 0; k < N; ++k) d.at[k] = before.at[k] + scale * (d.at[k] - scale * v.at[k] * mean);
    gpu::store(norm.dx + begin + c, d);
  });
}

/// Whether rows of the layer, and of the norm of its input, are whole packs.
template <class T, class... P>
bool packed(std::int64_t width, std::int64_t columns, const P*... arrays) {
  return (width | columns) % gpu::pack_size<T>() == 0 && gpu::aligned(arrays...);
}

/// Blocks of as many threads as a row has packs of N columns, up to kMostThreads, so that each takes one turn.
gpu::Grid grid_of(std::int64_t rows, std::int64_t width, int n, bool whole_rows) {
  const std::int64_t packs = gpu::ceil_div(width, std::int64_t{n}),
                     warps = gpu::ceil_div(packs, std::int64_t{gpu::kWarp});
  return {.grid = {rows, whole_rows ? 1 : gpu::ceil_div(width, kBlockColumns)},
          .block = static_cast<int>(std::min<std::int64_t>(warps * gpu::kWarp, kMostThreads))};
}

}  // namespace

template <class T>
void swiglu_gate_forward(const Stream& stream, std::int64_t rows, std::int64_t width, T* y, const T* gate_up,
                         const RowNorm<T>& norm) {
  const auto with = [&]<int N>() {
    gpu::launch(stream, grid_of(rows, width, N, false), swiglu_forward_kernel<T, N>, width, y, gate_up, norm);
  };
  packed<T>(width, norm.columns, gate_up, y, norm.x, norm.z) ? with.template operator()<gpu::pack_size<T>()>()
                                                             : with.template operator()<1>();
}

template <class T>
void swiglu_forward(const Stream& stream, const SwigluShape& s, T* y, T* gate_up, const T* x, const T* weight,
                    const RowNorm<T>& norm) {
  if (s.m * s.width == 0) return;
  const std::int64_t n = 2 * s.width;
  if (gate_up) {
    product<T>(stream, Product::nt, s.m, n, s.k, gate_up, x, weight, false);
    return swiglu_gate_forward(stream, s.m, s.width, y, gate_up, norm);
  }
  // Gate and up are not kept: work on rows that stay in the second-level cache until they are combined.
  const std::int64_t row_bytes = n * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t most = std::max<std::int64_t>(1, gpu::cached_bytes(stream) / row_bytes);
  const std::int64_t blocks = gpu::ceil_div(s.m, most), rows = gpu::ceil_div(s.m, blocks);
  const std::size_t bytes = static_cast<std::size_t>(rows * n) * sizeof(T);
  T* both = reinterpret_cast<T*>(gpu::scratch(stream, kProductScratch + bytes) + kProductScratch);
  for (std::int64_t first = 0; first < s.m; first += rows) {
    const std::int64_t count = std::min(rows, s.m - first);
    RowNorm<T> here = norm;
    if (norm.x) here.x += first * s.k, here.z += first * s.k;
    product<T>(stream, Product::nt, count, n, s.k, both, x + first * s.k, weight, false);
    swiglu_gate_forward(stream, count, s.width, y + first * s.width, both, here);
  }
}

template <class T>
void swiglu_gate_backward(const Stream& stream, std::int64_t rows, std::int64_t width, T* gate_up, const T* dy,
                          const RowSlope<T>& norm) {
  const auto with = [&]<int N>() {
    gpu::launch(stream, grid_of(rows, width, N, norm.x != nullptr), swiglu_backward_kernel<T, N>, width, gate_up, dy,
                norm);
  };
  packed<T>(width, norm.columns, gate_up, dy, norm.x, norm.dz, norm.dx)
      ? with.template operator()<gpu::pack_size<T>()>()
      : with.template operator()<1>();
}

LOCKSTEP_EACH_STORAGE(swiglu_forward, swiglu_gate_forward, swiglu_gate_backward)

}  // namespace lockstep::ops::cuda
