#pragma once
// Elementary functions on vectors of f32 and f64, accurate to a few units in the last place. The coefficients of f32
// are minimax fits (Remez, 40 digits), those of f64 Taylor's. tests/ops/activation_test.cpp measures the errors.
#include "simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

using F = Vec<float>;
using I = Vec<std::int32_t>;
using D = Vec<double>;
using L = Vec<std::int64_t>;
/// The bits of F and D. Sums wrap, as they do for exponents of NaN.
using FBits = Vec<std::uint32_t>;
using DBits = Vec<std::uint64_t>;

/// The largest x for which exp(-x), and exp(-x^2/2), are computed: beyond it denormal numbers would be slow.
template <class T>
inline constexpr T kLargestExponent = sizeof(T) == 4 ? T{87} : T{708};
template <class T>
inline constexpr T kLargestDeviation = sizeof(T) == 4 ? T(12.5) : T(37.5);

LOCKSTEP_INLINE F poly(F, float c) { return splat(c); }
/// c0 + c1 x + c2 x^2 + ...
template <class... C>
LOCKSTEP_INLINE F poly(F x, float c0, C... c) {
  return fma(poly(x, c...), x, splat(c0));
}

LOCKSTEP_INLINE D poly(D, double c) { return splat(c); }
template <class... C>
LOCKSTEP_INLINE D poly(D x, double c0, C... c) {
  return fma(poly(x, c...), x, splat(c0));
}

/// exp(x) = scale (1 + m), where scale is a power of two and |m| < 0.42, for x in [-87, 88] (f64: [-708, 709]).
template <class V>
struct ExpParts {
  V scale, m;
};
LOCKSTEP_INLINE ExpParts<F> exp_parts(F x) {
  // Adding 1.5 2^23 rounds to an integer, which is then in the low bits.
  const F magic = splat(0x1.8p23f);
  const F shifted = fma(x, splat(1.44269504f), magic);
  const F n = shifted - magic;
  const F r = fma(n, splat(-0x1.7f7d1cp-20f), fma(n, splat(-0x1.62e4p-1f), x));
  const F q = poly(r, 0.500000002709f, 0.16666576652f, 0.0416663741097f, 0.00836323483208f, 0.00139412161988f);
  return {(F)(((FBits)shifted << 23) + 0x3f800000), fma(r * r, q, r)};
}
/// exp(x + rest) with |rest| below an ulp of x.
LOCKSTEP_INLINE ExpParts<D> exp_parts(D x, D rest = D{}) {
  const D magic = splat(0x1.8p52);
  const D shifted = fma(x, splat(0x1.71547652b82fep0), magic);
  const D n = shifted - magic;
  const D r = fma(n, splat(-0x1.a39ef35793c76p-33), fma(n, splat(-0x1.62e42feep-1), x)) + rest;
  const D q = poly(r, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800,
                   1. / 39916800, 1. / 479001600, 1. / 6227020800);
  return {(D)(((DBits)shifted << 52) + 0x3ff0000000000000), fma(r * r, q, r)};
}
LOCKSTEP_INLINE ExpParts<F> limited_exp_parts(F x) { return exp_parts(min(splat(88.f), max(splat(-87.f), x))); }
LOCKSTEP_INLINE ExpParts<D> limited_exp_parts(D x) { return exp_parts(min(splat(709.), max(splat(-708.), x))); }
template <class V>
LOCKSTEP_INLINE V exp(V x) {
  const ExpParts<V> e = limited_exp_parts(x);
  return fma(e.scale, e.m, e.scale);
}
/// exp(x) - 1 without cancellation near 0.
template <class V>
LOCKSTEP_INLINE V expm1(V x) {
  const ExpParts<V> e = limited_exp_parts(x);
  return fma(e.scale, e.m, e.scale - (V{} + 1));
}
/// exp(-x^2/2) for |x| < 13 (f64: 37.5). With u = x^2, exp(-u/2) = 2^n exp(-v/2) and v = u + 2 n ln 2. The rounding
/// error of x^2 (half an ulp at x = 5 is 8 ulp of the result) is added to v.
LOCKSTEP_INLINE F exp_half_square(F x) {
  const F square = x * x, lost = fma(x, x, -square);
  const F magic = splat(0x1.8p23f);
  const F shifted = fma(square, splat(-0.72134752f), magic);
  const F n = shifted - magic;
  const F v = fma(n, splat(0x1.7f7d1cp-19f), fma(n, splat(0x1.62e4p0f), square)) + lost;
  const F q = poly(v, 0.125000000677f, -0.020833220815f, 0.00260414838186f, -0.000261351088502f, 0.0000217831503106f);
  const F m = fma(v * v, q, v * splat(-0.5f));
  const F scale = (F)(((FBits)shifted << 23) + 0x3f800000);
  return fma(scale, m, scale);
}
LOCKSTEP_INLINE D exp_half_square(D x) {
  const D square = x * x, lost = fma(x, x, -square);
  const ExpParts<D> e = exp_parts(square * splat(-0.5), lost * splat(-0.5));
  return fma(e.scale, e.m, e.scale);
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
