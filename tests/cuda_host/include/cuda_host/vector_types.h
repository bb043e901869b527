#pragma once
#include <cstdint>

// CUDA's short vectors, with its alignments, and the indices of threads and blocks.

#define CUDA_HOST_VECTORS(T, name, align2, align4)                      \
  struct name##1 {                                                      \
    T x;                                                                \
  };                                                                    \
  struct alignas(align2) name##2 {                                      \
    T x, y;                                                             \
  };                                                                    \
  struct name##3 {                                                      \
    T x, y, z;                                                          \
  };                                                                    \
  struct alignas(align4) name##4 {                                      \
    T x, y, z, w;                                                       \
  };                                                                    \
  constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

CUDA_HOST_VECTORS(signed char, char, 2, 4)
CUDA_HOST_VECTORS(unsigned char, uchar, 2, 4)
CUDA_HOST_VECTORS(short, short, 4, 8)
CUDA_HOST_VECTORS(unsigned short, ushort, 4, 8)
CUDA_HOST_VECTORS(int, int, 8, 16)
CUDA_HOST_VECTORS(unsigned, uint, 8, 16)
CUDA_HOST_VECTORS(long long, longlong, 16, 16)
CUDA_HOST_VECTORS(unsigned long long, ulonglong, 16, 16)
CUDA_HOST_VECTORS(float, float, 8, 16)
CUDA_HOST_VECTORS(double, double, 16, 16)
#undef CUDA_HOST_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// Set by the runner before a thread starts or resumes.
inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim{}, gridDim{};
inline constexpr int warpSize = 32;
namespace cuda_host {
/// The linear index of the running thread in its block: x first, then y, then z.
inline constinit thread_local int thread_number = 0;
}  // namespace cuda_host
