#pragma once
// Each activation computes value and derivative from one exponential: in f32 on vectors, in f64 element by element with
// the C library. Comparisons are written so that a NaN stays a NaN: a diverged network must not look healthy.
#include <cmath>

#include "ops/common/vecmath.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

/// With x = |a| and Phi(-x) = h(x): y = max(a, 0) - x h, and the derivative differs from its limit (0 or 1) by h - x
/// pdf(x). h(x) = exp(-x^2/2) g(x), where g(x) = erfcx(x/sqrt 2)/2 is a polynomial in t = 1/(1 + 0.3 x). The relative
/// error stays small far into the negative tail.
struct Gelu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    const F x = min(splat(12.5f), abs(a));  // beyond it h is below 1e-35, and denormal numbers would be slow
    const F gauss = exp_half_square(x);
    const F t = splat(1.f) / fma(x, splat(0.3f), splat(1.f));
    const F g = t * poly(t, 0.1196050407f, 0.1211111876f, 0.09775619006f, 0.1354959873f, -0.06652359888f, 0.2200843157f,
                         -0.1650770183f, 0.03754792079f);
    const F h = gauss * g;
    const F distance = fma(x * splat(-0.398942280f), gauss, h);
    y = fma(-x, h, max(a, F{}));
    d = a > F{} ? splat(1.f) - distance : distance;
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    const double phi = 0.5 * std::erfc(-a * 0.70710678118654752440);
    y = a * phi;
    d = phi + a * 0.39894228040143267794 * std::exp(-0.5 * a * a);
  }
};

struct Relu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    d = a > F{} ? splat(1.f) : F{};
    y = a < F{} ? F{} : a;  // in this order a NaN stays a NaN
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    d = a > 0 ? 1 : 0;
    y = a < 0 ? 0 : a;
  }
};

struct LeakyRelu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    d = a > F{} ? splat(1.f) : splat(0.01f);
    y = a * d;
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    d = a > 0 ? 1 : 0.01;
    y = a * d;
  }
};

/// With m = exp(2|a|) - 1: |y| = m/(m + 2), derivative = 4 (m + 1)/(m + 2)^2. Neither formula cancels.
struct Tanh {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    const F m = expm1(splat(2.f) * min(splat(43.f), abs(a)));
    const F r = splat(1.f) / (m + splat(2.f));
    const F value = m * r;
    y = (F)((I)value | ((I)a & static_cast<std::int32_t>(0x80000000)));
    d = (m + splat(1.f)) * r * (splat(4.f) * r);
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    const double x = std::fabs(a), m = std::expm1(2 * (x > 43 ? 43 : x));
    const double r = 1 / (m + 2);
    y = std::copysign(m * r, a);
    d = (m + 1) * r * (4 * r);
  }
};

/// With e = exp(-|a|) and r = 1/(1 + e): the value is r or e r, the derivative e r^2.
struct Sigmoid {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    const F e = exp(-abs(a));
    const F r = splat(1.f) / (splat(1.f) + e);
    y = a > F{} ? r : e * r;
    d = e * r * r;
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    const double e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
    y = a > 0 ? r : e * r;
    d = e * r * r;
  }
};

struct Silu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    F s, ds;
    Sigmoid::apply(a, s, ds);
    const F limited = max(splat(-87.f), a);  // the range of the exponential
    y = limited * s;
    d = fma(min(splat(87.f), limited), ds, s);
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    double s = 0, ds = 0;
    Sigmoid::apply(a, s, ds);
    y = a * s;
    d = s + a * ds;
  }
};

struct Elu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    const ExpParts e = exp_parts(max(splat(-87.f), min(F{}, a)));
    y = a > F{} ? a : fma(e.scale, e.m, e.scale - splat(1.f));
    d = a > F{} ? splat(1.f) : fma(e.scale, e.m, e.scale);
  }
  LOCKSTEP_INLINE static void apply(double a, double& y, double& d) {
    y = a > 0 ? a : std::expm1(a);
    d = a > 0 ? 1 : std::exp(a);
  }
};

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
