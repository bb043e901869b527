#pragma once
#include <cmath>

/// The update of one element by each rule. CPU and GPU compile these lines without contraction to FMA, so they produce
/// the same bits wherever operations are correctly rounded (all but the arc tangent in f64).
namespace lockstep::optim_kernels {

/// Scalars of one step of Adam or AdamW, already in the type of the sweep, and its update of one element.
/// make_optimizer() in optimizer.hpp states the equations and the sources.
template <class T>
struct AdamStep {
  static constexpr int kStates = 2;
  T scale;                       ///< of the gradient
  T l2;                          ///< coupled weight decay: g += l2 p
  T shrink;                      ///< decoupled weight decay: p *= shrink
  T beta1, rest1, beta2, rest2;  ///< rest = 1 - beta
  T rate;                        ///< lr / (1 - beta1^t)
  T root;                        ///< 1 / sqrt(1 - beta2^t)
  T eps;

  [[gnu::always_inline]] constexpr void operator()(T& p, T& m, T& v, T gradient) const {
    const T g = scale * gradient + l2 * p;
    const T mi = beta1 * m + rest1 * g;
    const T vi = beta2 * v + rest2 * (g * g);
    m = mi;
    v = vi;
    p = shrink * p - rate * (mi / (std::sqrt(vi) * root + eps));
  }
};

/// atan2(y, x) for x >= 0, with atan2(0, 0) = 0. In f32 the argument of the arc tangent is min/max <= 1:
/// atan(t) = t P(t^2), P a minimax fit; relative error 1.4e-7.
[[gnu::always_inline]] constexpr float atan2_right(float y, float x) {
  const float a = std::fabs(y), low = a < x ? a : x, high = a < x ? x : a;
  const float t = high > 0 ? low / high : 0.0f, z = t * t;
  float poly = 0.00290355262f;
  poly = poly * z - 0.0162830084f;
  poly = poly * z + 0.0430393684f;
  poly = poly * z - 0.075336761f;
  poly = poly * z + 0.106546774f;
  poly = poly * z - 0.142071337f;
  poly = poly * z + 0.199930541f;
  poly = poly * z - 0.33333094f;
  poly = poly * z + 0.999999986f;
  const float r = t * poly, angle = a < x ? r : high > 0 ? 1.57079633f - r : 0.0f;
  return y < 0 ? -angle : angle;
}
[[gnu::always_inline]] constexpr double atan2_right(double y, double x) { return std::atan2(y, x); }

/// The same for Adam-atan2.
template <class T>
struct AdamAtan2Step {
  static constexpr int kStates = 2;
  T scale;         ///< of the gradient
  T shrink;        ///< decoupled weight decay: p *= shrink
  T rest1, rest2;  ///< 1 - beta
  T unbias;        ///< of the first moment inside the arc tangent
  T rate;          ///< of the arc tangent
  T root;          ///< 1 / sqrt(1 - beta2^t)

  [[gnu::always_inline]] constexpr void operator()(T& p, T& m, T& v, T gradient) const {
    const T g = scale * gradient;
    const T mi = m + rest1 * (g - m);
    const T vi = v + rest2 * (g * g - v);
    m = mi;
    v = vi;
    p = shrink * p - rate * atan2_right(mi * unbias, std::sqrt(vi) * root);
  }
};

/// SGD without momentum, and with it.
template <class T>
struct SgdStep {
  static constexpr int kStates = 0;
  T scale, l2, lr;

  [[gnu::always_inline]] constexpr void operator()(T& p, T&, T&, T gradient) const {
    p -= lr * (scale * gradient + l2 * p);
  }
};

template <class T>
struct MomentumStep {
  static constexpr int kStates = 1;
  T scale, l2, lr;
  T keep;  ///< the momentum, or 0 in the first step, whose buffer starts as the gradient

  [[gnu::always_inline]] constexpr void operator()(T& p, T& buffer, T&, T gradient) const {
    const T b = keep * buffer + (scale * gradient + l2 * p);
    buffer = b;
    p -= lr * b;
  }
};

/// The exponential moving average.
template <class T>
[[gnu::always_inline]] constexpr void ema_rule(T& shadow, T p, T decay, T rest) {
  shadow = decay * shadow + rest * p;
}

}  // namespace lockstep::optim_kernels
