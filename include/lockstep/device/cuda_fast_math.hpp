#pragma once
#include <cmath>

#include "lockstep/base/real.hpp"
#include "lockstep/device/cuda_launch.hpp"

/// Functions whose results are rounded to the storage type T. For 16 bits the special function unit suffices: its
/// results are good to 22 bits, with subnormal numbers as 0, in one instruction. The compiler's own functions handle
/// subnormal numbers and round correctly, in up to ten instructions and a rare call.
namespace lockstep::gpu {

/// Scores are multiplied by log2(e), because the GPU has an instruction for powers of two.
template <class T>
inline constexpr T kLog2E = static_cast<T>(1.44269504088896340736);
template <class T>
inline constexpr T kLn2 = static_cast<T>(0.69314718055994530942);

/// 2^x.
template <class T>
__device__ inline real_t<T> exp2_for(real_t<T> x) {
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 2) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
  }
#endif
  return std::exp2(x);
}
/// 1 / x; 0 for infinity.
template <class T>
__device__ inline real_t<T> reciprocal_for(real_t<T> x) {
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 2) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
  }
#endif
  return 1 / x;
}

}  // namespace lockstep::gpu
