#include <cmath>

#include "optim/sweep_kernels.hpp"

namespace lockstep::optim_kernels::LOCKSTEP_ISA {

namespace {

/// Traffic: reads p, m, v, g, writes p, m, v.
template <class T>
void adam(std::int64_t n, T* __restrict__ p, T* __restrict__ m, T* __restrict__ v, const T* __restrict__ gradient,
          const AdamStep<T>& s) {
  const AdamStep<T> k = s;
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = k.scale * gradient[i] + k.l2 * p[i];
    const T mi = k.beta1 * m[i] + k.rest1 * g;
    const T vi = k.beta2 * v[i] + k.rest2 * (g * g);
    m[i] = mi;
    v[i] = vi;
    p[i] = k.shrink * p[i] - k.rate * (mi / (std::sqrt(vi) * k.root + k.eps));
  }
}

/// atan2(y, x) for x >= 0, with atan2(0, 0) = 0. In f32 through min/max, so that the arc tangent's argument is at most 1:
/// atan(t) = t P(t^2), P a minimax fit; relative error 1.4e-7.
inline float atan2_right(float y, float x) {
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
inline double atan2_right(double y, double x) { return std::atan2(y, x); }

template <class T>
void adam_atan2(std::int64_t n, T* __restrict__ p, T* __restrict__ m, T* __restrict__ v, const T* __restrict__ gradient,
                const AdamAtan2Step<T>& s) {
  const AdamAtan2Step<T> k = s;
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = k.scale * gradient[i];
    const T mi = m[i] + k.rest1 * (g - m[i]);
    const T vi = v[i] + k.rest2 * (g * g - v[i]);
    m[i] = mi;
    v[i] = vi;
    p[i] = k.shrink * p[i] - k.rate * atan2_right(mi * k.unbias, std::sqrt(vi) * k.root);
  }
}

template <class T>
void sgd(std::int64_t n, T* __restrict__ p, T* __restrict__ buffer, const T* __restrict__ gradient,
         const SgdStep<T>& s) {
  const SgdStep<T> k = s;
  if (buffer == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) p[i] -= k.lr * (k.scale * gradient[i] + k.l2 * p[i]);
    return;
  }
  const T keep = k.first ? T{0} : k.momentum;
  for (std::int64_t i = 0; i < n; ++i) {
    const T b = keep * buffer[i] + (k.scale * gradient[i] + k.l2 * p[i]);
    buffer[i] = b;
    p[i] -= k.lr * b;
  }
}

template <class T>
void ema(std::int64_t n, T* __restrict__ shadow, const T* __restrict__ p, T decay) {
  const T rest = 1 - decay;
  for (std::int64_t i = 0; i < n; ++i) shadow[i] = decay * shadow[i] + rest * p[i];
}

template <class T>
double sum_squares(std::int64_t n, const T* x) {
  constexpr std::int64_t kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const double value = static_cast<double>(x[i + l]);
      lanes[l] += value * value;
    }
  }
  for (std::int64_t l = 0; i < n; ++i, ++l) lanes[l] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace

template <class T>
Sweep<T> sweep() {
  return {adam<T>, adam_atan2<T>, sgd<T>, ema<T>, sum_squares<T>};
}
template Sweep<float> sweep<float>();
template Sweep<double> sweep<double>();

}  // namespace lockstep::optim_kernels::LOCKSTEP_ISA
