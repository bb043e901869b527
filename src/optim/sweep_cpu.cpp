#include "lockstep/base/instantiate.hpp"
#include "optim/ema_rule.hpp"
#include "optim/sweep_kernels.hpp"

namespace lockstep::optim_kernels::LOCKSTEP_ISA {

namespace {

/// Traffic: reads p, m, v, g, writes p, m, v.
template <class T>
void adam(std::int64_t n, T* __restrict__ p, T* __restrict__ m, T* __restrict__ v, const T* __restrict__ gradient,
          const AdamStep<T>& s) {
  const AdamStep<T> k = s;
  for (std::int64_t i = 0; i < n; ++i) adam_rule(p[i], m[i], v[i], gradient[i], k);
}

template <class T>
void adam_atan2(std::int64_t n, T* __restrict__ p, T* __restrict__ m, T* __restrict__ v, const T* __restrict__ gradient,
                const AdamAtan2Step<T>& s) {
  const AdamAtan2Step<T> k = s;
  for (std::int64_t i = 0; i < n; ++i) adam_atan2_rule(p[i], m[i], v[i], gradient[i], k);
}

template <class T>
void sgd(std::int64_t n, T* __restrict__ p, T* __restrict__ buffer, const T* __restrict__ gradient,
         const SgdStep<T>& s) {
  const SgdStep<T> k = s;
  if (buffer == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) sgd_rule(p[i], gradient[i], k);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) momentum_rule(p[i], buffer[i], gradient[i], k);
}

template <class T>
void ema(std::int64_t n, T* __restrict__ shadow, const T* __restrict__ p, T decay) {
  const T rest = 1 - decay;
  for (std::int64_t i = 0; i < n; ++i) ema_rule(shadow[i], p[i], decay, rest);
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

LOCKSTEP_KERNEL_TABLE(Sweep, sweep, adam<T>, adam_atan2<T>, sgd<T>, ema<T>, sum_squares<T>)

}  // namespace lockstep::optim_kernels::LOCKSTEP_ISA
