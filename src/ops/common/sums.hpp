#pragma once
// Sums of the lanes of a few vectors; simd.hpp has those of kLanes vectors and of one.
#include "simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

template <int kCount, int kBlock, class T>
LOCKSTEP_INLINE Vec<T> sum_of_stages(Vec<T>* v) {
  if constexpr (kBlock < kCount) {
#pragma GCC unroll 16
    for (int i = 0; i < kCount; i += 2 * kBlock)
      v[i] = interleave<kBlock, 0, T>(v[i], v[i + kBlock]) + interleave<kBlock, 1, T>(v[i], v[i + kBlock]);
    return sum_of_stages<kCount, 2 * kBlock, T>(v);
  } else if constexpr (kBlock < kLanes<T>) {
    Vec<IntOf<T>> from;
    for (int i = 0; i < kLanes<T>; ++i) from[i] = i ^ kBlock;
    v[0] += __builtin_shuffle(v[0], from);
    return sum_of_stages<kCount, 2 * kBlock, T>(v);
  } else {
    return v[0];
  }
}
/// Lane i < kCount of the result is the sum of v[i]'s lanes, added in a fixed tree; kCount is a power of two up to
/// kLanes. v is overwritten.
template <int kCount, class T>
LOCKSTEP_INLINE Vec<T> sum_of(Vec<T>* v) {
  return sum_of_stages<kCount, 1, T>(v);
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
