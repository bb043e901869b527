#pragma once
#include <cstdint>
#include <type_traits>

#include "lockstep/base/real.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"

/// Products of small half-precision matrices in the registers of a warp: tensor cores (compute capability 8.0 and
/// later). All 32 lanes must call each function together. Two neighbouring halves share a register, the first in the
/// lower bits. With g = lane / 4 and t = lane % 4, a lane holds
///
///   of a, 16 x 16:  (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each with its right neighbour
///   of b, 16 x 8:   (2t, g), (2t + 8, g), each with the element below it
///   of c, 16 x 8:   (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1), one register each
///
/// source  PTX ISA, "Matrix fragments for mma.m16n8k16", "ldmatrix"
namespace lockstep::gpu {

/// Loads four 8 x 8 matrices from shared memory. Lane l passes the address, a multiple of 16 bytes, of row l % 8 of
/// matrix l / 8, and receives (g, 2t) and (g, 2t + 1) of each matrix.
template <class T>
__device__ inline void load_matrices(std::uint32_t (&to)[4], const T* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  cuda_host::load_matrices(to, row, false);
#endif
}
/// Loads the four matrices transposed: the lane receives (2t, g) and (2t + 1, g).
template <class T>
__device__ inline void load_transposed(std::uint32_t (&to)[4], const T* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  cuda_host::load_matrices(to, row, true);
#endif
}

/// c += a b with products and sums in f32. T is the type of a and b, bf16 or f16.
template <class T>
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  cuda_host::multiply_add(std::is_same_v<T, bf16> ? cuda_host::HalfKind::bf16 : cuda_host::HalfKind::f16, c, a, b0, b1);
#endif
}

/// Rounds two values to nearest and packs them into one register.
template <class T>
__device__ inline std::uint32_t pack_halves(float first, float second) {
#ifdef __CUDACC__
  std::uint32_t packed;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
#else
  return std::uint32_t{from_real<T>(first).bits} | std::uint32_t{from_real<T>(second).bits} << 16;
#endif
}

}  // namespace lockstep::gpu
