#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda_runtime.h"

// bf16: the upper half of a float, rounded to nearest, ties to even.

struct __nv_bfloat16 {
  std::uint16_t bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(rounded(x)) {}
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

 private:
  static std::uint16_t rounded(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    if (std::isnan(x)) return 0x7fff;
    return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return std::bit_cast<__nv_bfloat16>(static_cast<std::uint16_t>(bits));
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
