#pragma once
#include <cstdint>
#include <initializer_list>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/tensor/tensor.hpp"

/// Element-wise passes over memory, several elements per load.
namespace lockstep::gpu {

/// Calls f.template at<N>(i) for each whole pack of elements i .. i + N - 1 and f.template at<1>(i) for the remaining
/// ones. One thread per pack, grid-stride.
template <int N, class F>
__global__ void __launch_bounds__(256) map_kernel(gpu::Earlier earlier, std::int64_t count, F f) {
  earlier.wait();
  const std::int64_t packs = count / N, items = packs + count % N, stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items; item += stride) {
    if (item < packs)
      f.template at<N>(item * N);
    else
      f.template at<1>(packs * N + item - packs);
  }
}

/// Runs f over `count` elements, N at a time if `packed`. Addresses must then be multiples of N elements.
template <int N, class F>
void map(const Stream& stream, std::int64_t count, bool packed, const F& f) {
  if (packed)
    launch(stream, grid_for(ceil_div(count, N)), map_kernel<N, F>, count, f);
  else
    launch(stream, grid_for(count), map_kernel<1, F>, count, f);
}
/// Runs f over `count` elements, 16 bytes of T at a time if `packed`.
template <class T, class F>
void map(const Stream& stream, std::int64_t count, bool packed, const F& f) {
  map<pack_size<T>()>(stream, count, packed, f);
}

/// i mod n, with the faster 32-bit division where possible.
__device__ inline std::int64_t remainder(std::int64_t i, std::int64_t n) {
  return (i | n) >> 32 == 0 ? static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(n) : i % n;
}
__device__ inline std::int64_t quotient(std::int64_t i, std::int64_t n) {
  return (i | n) >> 32 == 0 ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(n) : i / n;
}

template <class T, int N>
__device__ Pack<T, N> operator+(Pack<T, N> a, const Pack<T, N>& b) {
#pragma unroll
  for (int k = 0; k < N; ++k) a.at[k] += b.at[k];
  return a;
}
template <class T, int N>
__device__ Pack<T, N> operator*(Pack<T, N> a, const Pack<T, N>& b) {
#pragma unroll
  for (int k = 0; k < N; ++k) a.at[k] *= b.at[k];
  return a;
}
template <class T, int N>
__device__ Pack<T, N> operator*(T factor, Pack<T, N> a) {
#pragma unroll
  for (int k = 0; k < N; ++k) a.at[k] *= factor;
  return a;
}
template <class T, int N>
__device__ Pack<T, N> operator/(Pack<T, N> a, T divisor) {
#pragma unroll
  for (int k = 0; k < N; ++k) a.at[k] /= divisor;
  return a;
}

/// N elements for a functor of map.hpp.
template <int N>
struct At {
  std::int64_t row, column;
  template <class T>
  __device__ Pack<real_t<T>, N> get(const T* p) const {
    return load<N>(p + column);
  }
  template <class T>
  __device__ void put(T* p, const Pack<real_t<T>, N>& v) const {
    store(p + column, v);
  }
  template <class T>
  __device__ void put(T* p, const Pack<real_t<T>, N>& v, bool accumulate) const {
    put(p, accumulate ? get(p) + v : v);
  }
  template <class R>
  __device__ Pack<R, N> fma(const Pack<R, N>& a, const Pack<R, N>& b, Pack<R, N> c) const {
#pragma unroll
    for (int k = 0; k < N; ++k) c.at[k] = std::fma(a.at[k], b.at[k], c.at[k]);
    return c;
  }
  template <class R>
  __device__ Pack<R, N> inverse_root(Pack<R, N> v, R eps) const {
#pragma unroll
    for (int k = 0; k < N; ++k) v.at[k] = 1 / std::sqrt(v.at[k] + eps);
    return v;
  }
};
/// Runs a functor of map.hpp over rows, or over one row.
template <class F>
struct InRows {
  std::int64_t columns;
  F f;
  InRows(std::int64_t columns_, const F& f_) : columns(columns_), f(f_) {}
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = quotient(i, columns);
    f(At<N>{row, i - row * columns});
  }
};
template <class F>
struct InOneRow {
  F f;
  explicit InOneRow(const F& f_) : f(f_) {}
  template <int N>
  __device__ void at(std::int64_t i) const {
    f(At<N>{0, i});
  }
};

/// Whether the addresses of these arrays are multiples of packs of n elements.
inline bool packable(int n, std::initializer_list<Tensor> arrays) {
  for (const Tensor& t : arrays)
    if (reinterpret_cast<std::uintptr_t>(t.raw()) % (n * size_bytes(t.dtype())) != 0) return false;
  return true;
}

}  // namespace lockstep::gpu
