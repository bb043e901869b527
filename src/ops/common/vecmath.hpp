#pragma once
// Elementary functions on vectors of f32 (f64: lane by lane with the C library). Coefficients are minimax fits (Remez,
// 40 digits). tests/ops/activation_test.cpp measures the errors.
#include <cmath>

#include "simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

using F = Vec<float>;
using I = Vec<std::int32_t>;

LOCKSTEP_INLINE F poly(F, float c) { return splat(c); }
/// c0 + c1 x + c2 x^2 + ...
template <class... C>
LOCKSTEP_INLINE F poly(F x, float c0, C... c) {
  return fma(poly(x, c...), x, splat(c0));
}

/// exp(x) = scale (1 + m), where scale is a power of two and |m| < 0.42, for -87 <= x <= 88.
struct ExpParts {
  F scale, m;
};
LOCKSTEP_INLINE ExpParts exp_parts(F x) {
  // Adding 1.5 2^23 rounds to an integer, which is then in the low bits.
  const F magic = splat(0x1.8p23f);
  const F shifted = fma(x, splat(1.44269504f), magic);
  const F n = shifted - magic;
  const F r = fma(n, splat(-0x1.7f7d1cp-20f), fma(n, splat(-0x1.62e4p-1f), x));
  const F q = poly(r, 0.500000002709f, 0.16666576652f, 0.0416663741097f, 0.00836323483208f, 0.00139412161988f);
  return {(F)(((I)shifted << 23) + 0x3f800000), fma(r * r, q, r)};
}
LOCKSTEP_INLINE F exp(F x) {
  const ExpParts e = exp_parts(min(splat(88.f), max(splat(-87.f), x)));
  return fma(e.scale, e.m, e.scale);
}
LOCKSTEP_INLINE Vec<double> exp(Vec<double> x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::exp(x[i]);
  return x;
}
/// exp(-x^2/2) for |x| < 13. With u = x^2, exp(-u/2) = 2^n exp(-v/2) and v = u + 2 n ln 2. The rounding error of x^2
/// (half an ulp at x = 5 is 8 ulp of the result) is added to v.
LOCKSTEP_INLINE F exp_half_square(F x) {
  const F square = x * x, lost = fma(x, x, -square);
  const F magic = splat(0x1.8p23f);
  const F shifted = fma(square, splat(-0.72134752f), magic);
  const F n = shifted - magic;
  const F v = fma(n, splat(0x1.7f7d1cp-19f), fma(n, splat(0x1.62e4p0f), square)) + lost;
  const F q = poly(v, 0.125000000677f, -0.020833220815f, 0.00260414838186f, -0.000261351088502f, 0.0000217831503106f);
  const F m = fma(v * v, q, v * splat(-0.5f));
  const F scale = (F)(((I)shifted << 23) + 0x3f800000);
  return fma(scale, m, scale);
}
/// exp(x) - 1 without cancellation near 0.
LOCKSTEP_INLINE F expm1(F x) {
  const ExpParts e = exp_parts(min(splat(88.f), max(splat(-87.f), x)));
  return fma(e.scale, e.m, e.scale - splat(1.f));
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
