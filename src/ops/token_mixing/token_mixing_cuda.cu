#include <algorithm>

#include "lockstep/device/cuda_scratch.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "ops/swiglu/swiglu_kernels.hpp"
#include "token_mixing_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::Pack;

/// One thread per N channels of a sequence: y = x + y, each channel scaled over its positions. Memory bound: reads x
/// once and y twice, writes y twice; the second time y comes from the caches.
template <class T>
struct Normalise {
  std::int64_t positions, channels;
  T* y;
  real_t<T>* rstd;
  const T* x;
  real_t<T> eps;
  template <int N>
  __device__ void at(std::int64_t i) const {
    using R = real_t<T>;
    const std::int64_t b = gpu::quotient(i, channels), first = b * (positions - 1) * channels + i;
    const auto sum_at = [&](std::int64_t at) {
      Pack<R, N> v = gpu::load<N>(x + at);
      const Pack<R, N> branch = gpu::load<N>(y + at);
#pragma unroll
      for (int k = 0; k < N; ++k) v.at[k] += branch.at[k];
      return v;
    };
    Pack<R, N> squares{};
    for (std::int64_t t = 0; t < positions; ++t) {
      const Pack<R, N> v = sum_at(first + t * channels);
#pragma unroll
      for (int k = 0; k < N; ++k) squares.at[k] += v.at[k] * v.at[k];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      squares.at[k] = 1 / std::sqrt(squares.at[k] / static_cast<R>(positions) + eps);
      if (rstd) rstd[i + k] = squares.at[k];
    }
    for (std::int64_t t = 0; t < positions; ++t) {
      Pack<R, N> v = sum_at(first + t * channels);
#pragma unroll
      for (int k = 0; k < N; ++k) v.at[k] *= squares.at[k];
      gpu::store(y + first + t * channels, v);
    }
  }
};

/// Like Normalise: the gradient dv of the sum, and dx (+)= dv unless dx is null. Reads y and dy twice, writes dv, reads
/// and writes dx.
template <class T>
struct Slopes {
  std::int64_t positions, channels;
  T* dv;
  T* dx;
  bool add;
  const T* dy;
  const T* y;
  const real_t<T>* rstd;
  template <int N>
  __device__ void at(std::int64_t i) const {
    using R = real_t<T>;
    const std::int64_t b = gpu::quotient(i, channels), first = b * (positions - 1) * channels + i;
    Pack<R, N> mean{};
    for (std::int64_t t = 0; t < positions; ++t) {
      const Pack<R, N> v = gpu::load<N>(y + first + t * channels), d = gpu::load<N>(dy + first + t * channels);
#pragma unroll
      for (int k = 0; k < N; ++k) mean.at[k] += v.at[k] * d.at[k];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) mean.at[k] /= static_cast<R>(positions);
    for (std::int64_t t = 0; t < positions; ++t) {
      const std::int64_t at = first + t * channels;
      const Pack<R, N> v = gpu::load<N>(y + at);
      Pack<R, N> d = gpu::load<N>(dy + at);
#pragma unroll
      for (int k = 0; k < N; ++k) d.at[k] = rstd[i + k] * (d.at[k] - v.at[k] * mean.at[k]);
      gpu::store(dv + at, d);
      if (!dx) continue;
      if (add) {
        const Pack<R, N> before = gpu::load<N>(dx + at);
#pragma unroll
        for (int k = 0; k < N; ++k) d.at[k] += before.at[k];
      }
      gpu::store(dx + at, d);
    }
  }
};

/// sum_i += parts_0i + parts_1i + ..., in this order. columns above 0: the parts are the transposes of the sum, with
/// rows of `columns` elements.
template <class R>
struct AddParts {
  std::int64_t count, size, columns;
  R* sum;
  const R* parts;
  template <int N>
  __device__ void at(std::int64_t i) const {
    R total = 0;
    for (std::int64_t p = 0; p < count; ++p) total += parts[p * size + i];
    sum[columns > 0 ? i % columns * (size / columns) + i / columns : i] += total;
  }
};

/// to (columns, rows) = from' (rows, columns).
template <class T>
struct Transpose {
  std::int64_t rows, columns;
  T* to;
  const T* from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    to[i] = from[i % rows * columns + i / rows];
  }
};
/// gate_up' (T, 2I). Sequences have odd lengths, such as 97, and the fast kernels of the library need rows that begin at
/// multiples of 16 bytes: rows of 2I elements do, rows of T do not. 200 KB, against 2 GFLOP of a group.
template <class T>
void transpose_gate_up(const Stream& stream, const MixShape& s, T* to, const T* gate_up) {
  gpu::map<T>(stream, 2 * s.width * s.positions, false, Transpose<T>{2 * s.width, s.positions, to, gate_up});
}

/// Sequences whose gate, up and product stay in the second-level cache until they are combined.
template <class T>
std::int64_t group_of(const MixShape& s) {
  constexpr std::int64_t kBlockBytes = std::int64_t{24} << 20;
  const std::int64_t each = 3 * s.width * s.channels * static_cast<std::int64_t>(sizeof(T));
  return std::clamp<std::int64_t>(kBlockBytes / each, 1, s.sequences);
}

template <class T>
bool packed(const MixShape& s, const T* a, const T* b, const T* c, const T* d) {
  return s.channels % gpu::pack_size<T>() == 0 && gpu::aligned(a, b, c, d);
}

/// Scratch memory after that of product().
std::byte* memory_for(const Stream& stream, const gpu::ScratchPlan& plan) {
  return gpu::scratch(stream, kProductScratch + plan.size_bytes()) + kProductScratch;
}

bool empty(const MixShape& s) { return s.sequences * s.positions * s.channels * s.width == 0; }

}  // namespace

template <class T>
void token_mixing_forward(const Stream& stream, const MixShape& s, T* y, T* kept, real_t<T>* rstd, const T* x,
                          const T* gate_up, const T* down, real_t<T> eps) {
  if (empty(s)) return;
  const std::int64_t t = s.positions, d = s.channels, i = s.width, group = group_of<T>(s);
  gpu::ScratchPlan plan;
  const auto product_array = plan.add<T>(group * i * d), both_array = plan.add<T>(kept ? 0 : group * 2 * i * d);
  const auto turned_array = plan.add<T>(2 * i * t);
  std::byte* memory = memory_for(stream, plan);
  T *h = product_array.in(memory), *turned = turned_array.in(memory);
  transpose_gate_up(stream, s, turned, gate_up);
  for (std::int64_t first = 0; first < s.sequences; first += group) {
    const std::int64_t n = std::min(group, s.sequences - first);
    T* both = kept ? kept + first * 2 * i * d : both_array.in(memory);
    product<T>(stream, Product::tn, 2 * i, d, t, both, turned, x + first * t * d, false, static_cast<const T*>(nullptr),
               {n, 2 * i * d, 0, t * d});
    swiglu_gate_forward<T>(stream, n, i * d, h, both, {});
    product<T>(stream, Product::nn, t, d, i, y + first * t * d, down, h, false, static_cast<const T*>(nullptr),
               {n, t * d, 0, i * d});
  }
  gpu::map<T>(stream, s.sequences * d, packed<T>(s, y, x, nullptr, nullptr), Normalise<T>{t, d, y, rstd, x, eps});
}

template <class T>
void token_mixing_backward(const Stream& stream, const MixShape& s, T* dx, bool add_x, real_t<T>* dgate_up, bool add_up,
                           real_t<T>* ddown, bool add_down, const T* dy, const T* y, T* kept, const real_t<T>* rstd,
                           const T* x, const T* gate_up, const T* down) {
  using R = real_t<T>;
  const std::int64_t t = s.positions, d = s.channels, i = s.width, size = t * i;
  if (ddown && !add_down) zero_bytes(stream, ddown, static_cast<std::size_t>(size) * sizeof(R));
  if (dgate_up && !add_up) zero_bytes(stream, dgate_up, static_cast<std::size_t>(2 * size) * sizeof(R));
  if (empty(s)) return;
  const std::int64_t group = group_of<T>(s);
  gpu::ScratchPlan plan;
  const auto h_array = plan.add<T>(group * i * d), dh_array = plan.add<T>(group * i * d);
  const auto dv_array = plan.add<T>(group * t * d), turned_array = plan.add<T>(dx ? 2 * i * t : 0);
  const auto parts_array = plan.add<R>(ddown ? group * 2 * size : 0);
  std::byte* memory = memory_for(stream, plan);
  T *h = h_array.in(memory), *dh = dh_array.in(memory), *dv = dv_array.in(memory);
  R* parts = parts_array.in(memory);
  T* turned = turned_array.in(memory);
  if (dx) transpose_gate_up(stream, s, turned, gate_up);
  const R* none = nullptr;
  for (std::int64_t first = 0; first < s.sequences; first += group) {
    const std::int64_t n = std::min(group, s.sequences - first), at = first * t * d;
    T* both = kept + first * 2 * i * d;
    T* to_x = dx ? dx + at : nullptr;
    gpu::map<T>(stream, n * d, packed<T>(s, dv, to_x, dy + at, y + at),
                Slopes<T>{t, d, dv, to_x, add_x, dy + at, y + at, rstd + first * d});
    if (ddown) {
      swiglu_gate_forward<T>(stream, n, i * d, h, both, {});
      product<T>(stream, Product::nt, t, i, d, parts, dv, h, false, none, {n, size, t * d, i * d});
      gpu::map<R>(stream, size, false, AddParts<R>{n, size, 0, ddown, parts});
    }
    product<T>(stream, Product::tn, i, d, t, dh, down, dv, false, static_cast<const T*>(nullptr), {n, i * d, 0, t * d});
    swiglu_gate_backward<T>(stream, n, i * d, both, dh, {});
    if (dgate_up) {
      product<T>(stream, Product::nt, t, 2 * i, d, parts, x + at, both, false, none, {n, 2 * size, t * d, 2 * i * d});
      gpu::map<R>(stream, 2 * size, false, AddParts<R>{n, 2 * size, 2 * i, dgate_up, parts});
    }
    if (to_x)
      product<T>(stream, Product::nn, t, d, 2 * i, to_x, turned, both, true, static_cast<const T*>(nullptr),
                 {n, t * d, 0, 2 * i * d});
  }
}

LOCKSTEP_EACH_STORAGE(token_mixing_forward, token_mixing_backward)

}  // namespace lockstep::ops::cuda
