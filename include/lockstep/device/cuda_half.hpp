#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "lockstep/base/real.hpp"
#include "lockstep/device/cuda_types.hpp"

/// Element access for kernels. Kernels are templates over a storage type T (float, double, bf16, f16): they load and
/// store with these functions and compute in real_t<T>. For float and double the conversions are the identity.
namespace lockstep::gpu {

__device__ inline float to_real(float x) { return x; }
__device__ inline double to_real(double x) { return x; }
__device__ inline float to_real(bf16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
__device__ inline float to_real(f16 x) { return __half2float(__ushort_as_half(x.bits)); }

/// Rounds to nearest, ties to even; values too large for f16 become infinite.
template <class T>
__device__ T from_real(real_t<T> x) {
  if constexpr (std::is_same_v<T, bf16>)
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  else if constexpr (std::is_same_v<T, f16>)
    return {__half_as_ushort(__float2half_rn(x))};
  else
    return x;
}

template <class T>
__device__ real_t<T> load(const T* p) {
  return to_real(*p);
}
template <class T>
__device__ void store(T* p, real_t<T> x) {
  *p = from_real<T>(x);
}
/// *p = x, or *p += x.
template <class T>
__device__ void store(T* p, real_t<T> x, bool accumulate) {
  store(p, accumulate ? load(p) + x : x);
}

/// N consecutive elements that move in one access. Their address is a multiple of their size.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};
template <int N, class T>
__device__ Pack<real_t<T>, N> load(const T* p) {
  const Pack<T, N> stored = *reinterpret_cast<const Pack<T, N>*>(p);
  if constexpr (std::is_same_v<T, real_t<T>>) {
    return stored;
  } else {
    Pack<real_t<T>, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = to_real(stored.at[k]);
    return pack;
  }
}
template <class T, int N>
__device__ void store(T* p, const Pack<real_t<T>, N>& pack) {
  if constexpr (std::is_same_v<T, real_t<T>>) {
    *reinterpret_cast<Pack<T, N>*>(p) = pack;
  } else {
    Pack<T, N> stored;
#pragma unroll
    for (int k = 0; k < N; ++k) stored.at[k] = from_real<T>(pack.at[k]);
    *reinterpret_cast<Pack<T, N>*>(p) = stored;
  }
}

/// Elements per 16-byte load, the widest load.
template <class T>
constexpr int pack_size() {
  return static_cast<int>(16 / sizeof(T));
}

/// Whether all addresses, except null ones, are multiples of 16 bytes.
template <class... P>
bool aligned(const P*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) | ...) & 15) == 0;
}
/// Whether each non-null address is a multiple of the size of a Pack<T, N> of its type.
template <int N, class... P>
bool aligned_for(const P*... pointers) {
  return ((pointers == nullptr || reinterpret_cast<std::uintptr_t>(pointers) % (N * sizeof(P)) == 0) && ...);
}

}  // namespace lockstep::gpu
