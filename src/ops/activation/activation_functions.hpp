#pragma once
// Each activation computes value and derivative of a vector from one exponential. Comparisons are written so that a NaN
// stays a NaN: a diverged network must not look healthy.
#include "ops/common/vecmath.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

/// Phi(-x) exp(x^2/2) = erfcx(x/sqrt 2)/2 for x >= 0: a polynomial in 1/(1 + 0.3 x), in f64 in (x - 5)/(x + 5).
LOCKSTEP_INLINE F scaled_normal_tail(F x) {
  const F t = splat(1.f) / fma(x, splat(0.3f), splat(1.f));
  return t * poly(t, 0.1196050407f, 0.1211111876f, 0.09775619006f, 0.1354959873f, -0.06652359888f, 0.2200843157f,
                  -0.1650770183f, 0.03754792079f);
}
LOCKSTEP_INLINE D scaled_normal_tail(D x) {  // a Chebyshev fit; relative error 6e-17
  const D r = splat(1.) / (x + splat(5.)), s = (x - splat(5.)) * r;
  return r * poly(s, 0.769193049750062944, -0.665382502890057638, 0.495305615969980501, -0.313533156671217153,
                  0.165020366170195179, -0.069118638708741828, 0.0207950668032340378, -0.00299337673893597264,
                  -0.000797869427747529648, 0.0005448988347568596, -0.0000593755883337776698, -0.0000497617837401878903,
                  0.0000166808527199253954, 3.97793826234342628e-6, -2.76887878367209136e-6, -3.3110285443318108e-7,
                  4.33476642851375648e-7, 3.58445465608715985e-8, -6.74168905182360343e-8, -5.02723193096698263e-9,
                  9.27508224153734225e-9, 5.0592974879666957e-10, -7.85445858324765763e-10);
}

/// With x = |a| and h = Phi(-x): y = max(a, 0) - x h, and the derivative differs from its limit (0 or 1) by h - x
/// pdf(x). The relative error stays small far into the negative tail.
struct Gelu {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    using V = Vec<T>;
    const V x = min(splat(kLargestDeviation<T>), abs(a));
    const V gauss = exp_half_square(x);
    const V h = gauss * scaled_normal_tail(x);
    const V distance = fma(x * splat(T(-0.39894228040143267794)), gauss, h);
    y = fma(-x, h, max(a, V{}));
    d = a > V{} ? splat(T{1}) - distance : distance;
  }
};

struct Relu {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    d = a > Vec<T>{} ? splat(T{1}) : Vec<T>{};
    y = a < Vec<T>{} ? Vec<T>{} : a;  // in this order a NaN stays a NaN
  }
};

struct LeakyRelu {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    d = a > Vec<T>{} ? splat(T{1}) : splat(T(0.01));
    y = a * d;
  }
};

/// With m = exp(2|a|) - 1: |y| = m/(m + 2), derivative = 4 (m + 1)/(m + 2)^2. Neither formula cancels.
struct Tanh {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    const Vec<T> m = expm1(splat(T{2}) * min(splat(T{43}), abs(a)));
    const Vec<T> r = splat(T{1}) / (m + splat(T{2}));
    y = with_sign(m * r, a);
    d = (m + splat(T{1})) * r * (splat(T{4}) * r);
  }
};

/// With e = exp(-|a|) and r = 1/(1 + e): the value is r or e r, the derivative e r^2.
struct Sigmoid {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    const Vec<T> e = exp(-abs(a));
    const Vec<T> r = splat(T{1}) / (splat(T{1}) + e);
    y = a > Vec<T>{} ? r : e * r;
    d = e * r * r;
  }
};

struct Silu {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    Vec<T> s, ds;
    Sigmoid::apply<T>(a, s, ds);
    const Vec<T> limited = max(splat(-kLargestExponent<T>), a);
    y = limited * s;
    d = fma(min(splat(kLargestExponent<T>), limited), ds, s);
  }
};

struct Elu {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    const ExpParts<Vec<T>> e = exp_parts(max(splat(-kLargestExponent<T>), min(Vec<T>{}, a)));
    y = a > Vec<T>{} ? a : fma(e.scale, e.m, e.scale - splat(T{1}));
    d = a > Vec<T>{} ? splat(T{1}) : fma(e.scale, e.m, e.scale);
  }
};

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
