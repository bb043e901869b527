#pragma once
#include <cmath>

#include "optim/sweep_kernels.hpp"

/// One element through one step of each rule. Processors and GPUs run these same lines, compiled without contraction:
/// where the operations are rounded correctly (all but the arc tangent in double) they give the same bits.
namespace lockstep::optim_kernels {

#define LOCKSTEP_RULE [[gnu::always_inline]] constexpr

template <class T>
LOCKSTEP_RULE void adam_rule(T& p, T& m, T& v, T gradient, const AdamStep<T>& k) {
  const T g = k.scale * gradient + k.l2 * p;
  const T mi = k.beta1 * m + k.rest1 * g;
  const T vi = k.beta2 * v + k.rest2 * (g * g);
  m = mi;
  v = vi;
  p = k.shrink * p - k.rate * (mi / (std::sqrt(vi) * k.root + k.eps));
}

/// atan2(y, x) for x >= 0, with atan2(0, 0) = 0. In f32 through min/max, so that the arc tangent's argument is at most 1:
/// atan(t) = t P(t^2), P a minimax fit; relative error 1.4e-7.
LOCKSTEP_RULE float atan2_right(float y, float x) {
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
LOCKSTEP_RULE double atan2_right(double y, double x) { return std::atan2(y, x); }

template <class T>
LOCKSTEP_RULE void adam_atan2_rule(T& p, T& m, T& v, T gradient, const AdamAtan2Step<T>& k) {
  const T g = k.scale * gradient;
  const T mi = m + k.rest1 * (g - m);
  const T vi = v + k.rest2 * (g * g - v);
  m = mi;
  v = vi;
  p = k.shrink * p - k.rate * atan2_right(mi * k.unbias, std::sqrt(vi) * k.root);
}

template <class T>
LOCKSTEP_RULE void sgd_rule(T& p, T gradient, const SgdStep<T>& k) {
  p -= k.lr * (k.scale * gradient + k.l2 * p);
}

/// `keep` is the momentum, or 0 in the first step.
template <class T>
LOCKSTEP_RULE void momentum_rule(T& p, T& buffer, T gradient, T keep, const SgdStep<T>& k) {
  const T b = keep * buffer + (k.scale * gradient + k.l2 * p);
  buffer = b;
  p -= k.lr * b;
}

template <class T>
LOCKSTEP_RULE void ema_rule(T& shadow, T p, T decay, T rest) {
  shadow = decay * shadow + rest * p;
}

#undef LOCKSTEP_RULE

}  // namespace lockstep::optim_kernels
