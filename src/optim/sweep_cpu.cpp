#include "lockstep/base/instantiate.hpp"
#include "optim/sweep_kernels.hpp"

namespace lockstep::optim_kernels::LOCKSTEP_ISA {

/// Traffic: reads p, the states and the gradient, writes p and the states.
template <template <class> class Step, class T>
void update(std::int64_t n, T* __restrict__ p, T* __restrict__ a, T* __restrict__ b, const T* __restrict__ gradient,
            const Step<T>& step) {
  constexpr int kStates = Step<T>::kStates;
  const Step<T> rule = step;
  T none{};
  for (std::int64_t i = 0; i < n; ++i) rule(p[i], kStates > 0 ? a[i] : none, kStates > 1 ? b[i] : none, gradient[i]);
}
#define LOCKSTEP_INSTANTIATE(Step, T) template void update(std::int64_t, T*, T*, T*, const T*, const Step<T>&)
LOCKSTEP_EACH_STEP(LOCKSTEP_INSTANTIATE, float)
LOCKSTEP_EACH_STEP(LOCKSTEP_INSTANTIATE, double)

namespace {

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

LOCKSTEP_KERNEL_TABLE(Sweep, sweep, ema<T>, sum_squares<T>)

}  // namespace lockstep::optim_kernels::LOCKSTEP_ISA
