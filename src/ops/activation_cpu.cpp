#include <cmath>

#include "activation_kernels.hpp"
#include "vecmath.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

// Each activation gives value and derivative from one exponential: for vectors of f32, and for one f64 through the C
// library. Comparisons are written so that a NaN stays a NaN: a diverged network must not look healthy.

/// With Phi(-x) = h(x) for x = |a|: y = max(a, 0) - x h, and the derivative's distance from its limit (0 or 1) is h - x
/// pdf(x). h(x) = exp(-x^2/2) g(x), g(x) = erfcx(x/sqrt 2)/2 a polynomial in t = 1/(1 + 0.3 x): relatively exact far
/// into the negative tail.
struct Gelu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    const F x = min(splat(12.5f), abs(a));  // beyond, h is below 1e-35; denormal numbers would be slow
    const F gauss = exp_half_square(x);
    const F t = splat(1.f) / fma(x, splat(0.3f), splat(1.f));
    const F g = t * poly(t, 0.1196050407f, 0.1211111876f, 0.09775619006f, 0.1354959873f, -0.06652359888f, 0.2200843157f,
                         -0.1650770183f, 0.03754792079f);
    const F h = gauss * g;
    const F distance = fma(x * splat(-0.398942280f), gauss, h);
    y = fma(-x, h, max(a, F{}));
    d = a > F{} ? splat(1.f) - distance : distance;
  }
  static void apply(double a, double& y, double& d) {
    const double phi = 0.5 * std::erfc(-a * 0.70710678118654752440);
    y = a * phi;
    d = phi + a * 0.39894228040143267794 * std::exp(-0.5 * a * a);
  }
};

struct Relu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    d = a > F{} ? splat(1.f) : F{};
    y = a < F{} ? F{} : a;  // this way round a NaN stays one
  }
  static void apply(double a, double& y, double& d) {
    d = a > 0 ? 1 : 0;
    y = a < 0 ? 0 : a;
  }
};

struct LeakyRelu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    d = a > F{} ? splat(1.f) : splat(0.01f);
    y = a * d;
  }
  static void apply(double a, double& y, double& d) {
    d = a > 0 ? 1 : 0.01;
    y = a * d;
  }
};

/// With m = exp(2|a|) - 1: |y| = m/(m + 2), derivative = 4 (m + 1)/(m + 2)^2, neither of which cancels.
struct Tanh {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    const F m = expm1(splat(2.f) * min(splat(43.f), abs(a)));
    const F r = splat(1.f) / (m + splat(2.f));
    const F value = m * r;
    y = (F)((I)value | ((I)a & static_cast<std::int32_t>(0x80000000)));
    d = (m + splat(1.f)) * r * (splat(4.f) * r);
  }
  static void apply(double a, double& y, double& d) {
    const double c = 1 / std::cosh(a);
    y = std::tanh(a);
    d = c * c;
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
  static void apply(double a, double& y, double& d) {
    const double e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
    y = a > 0 ? r : e * r;
    d = e * r * r;
  }
};

struct Silu {
  LOCKSTEP_INLINE static void apply(F a, F& y, F& d) {
    F s, ds;
    Sigmoid::apply(a, s, ds);
    const F limited = max(splat(-87.f), a);  // the exponential ends there, too
    y = limited * s;
    d = fma(min(splat(87.f), limited), ds, s);
  }
  static void apply(double a, double& y, double& d) {
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
  static void apply(double a, double& y, double& d) {
    y = a > 0 ? a : std::expm1(a);
    d = a > 0 ? 1 : std::exp(a);
  }
};

template <class Op>
void map(std::int64_t n, float* y, float* derivative, const float* x) {
  constexpr std::int64_t kL = kLanes<float>;
  std::int64_t i = 0;
  F value, slope;
  for (; i + kL <= n; i += kL) {
    Op::apply(load(x + i), value, slope);
    store(y + i, value);
    if (derivative) store(derivative + i, slope);
  }
  if (i < n) {
    const Lanes<float> lanes(n - i);
    Op::apply(load(x + i, lanes), value, slope);
    store(y + i, value, lanes);
    if (derivative) store(derivative + i, slope, lanes);
  }
}
template <class Op>
void map(std::int64_t n, double* y, double* derivative, const double* x) {
  for (std::int64_t i = 0; i < n; ++i) {
    double value, slope;
    Op::apply(x[i], value, slope);
    y[i] = value;
    if (derivative) derivative[i] = slope;
  }
}

template <class T>
void multiply(std::int64_t n, T* dx, const T* dy, const T* d, bool accumulate) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t i = 0; i < n; i += kL) {
    const Lanes<T> lanes(n - i < kL ? n - i : kL);
    const Vec<T> product = load(dy + i, lanes) * load(d + i, lanes);
    store(dx + i, accumulate ? load(dx + i, lanes) + product : product, lanes);
  }
}

}  // namespace

template <class T>
ActivationKernel<T> activation_kernel(Activation activation) {
  switch (activation) {
    case Activation::none:
      return nullptr;
    case Activation::gelu:
      return map<Gelu>;
    case Activation::relu:
      return map<Relu>;
    case Activation::tanh:
      return map<Tanh>;
    case Activation::sigmoid:
      return map<Sigmoid>;
    case Activation::leaky_relu:
      return map<LeakyRelu>;
    case Activation::elu:
      return map<Elu>;
    case Activation::silu:
      return map<Silu>;
  }
  return nullptr;
}
template <class T>
MultiplyKernel<T> multiply_kernel() {
  return multiply<T>;
}

template ActivationKernel<float> activation_kernel<float>(Activation);
template ActivationKernel<double> activation_kernel<double>(Activation);
template MultiplyKernel<float> multiply_kernel<float>();
template MultiplyKernel<double> multiply_kernel<double>();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
