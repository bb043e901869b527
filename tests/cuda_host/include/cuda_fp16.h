#pragma once
#include <bit>
#include <cstdint>

#include "cuda_runtime.h"

// IEEE half precision, rounded to nearest, ties to even.

struct __half {
  _Float16 value;

  __half() = default;
  __half(float x) : value(static_cast<_Float16>(x)) {}
  operator float() const { return static_cast<float>(value); }
};

inline __half __float2half_rn(float x) { return x; }
inline float __half2float(__half x) { return x; }
inline __half __ushort_as_half(unsigned short bits) { return std::bit_cast<__half>(bits); }
inline unsigned short __half_as_ushort(__half x) { return std::bit_cast<unsigned short>(x); }
