#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "optim/update_rules.hpp"

namespace lockstep::optim_kernels {

/// Kernels of one instruction set, elementwise over n elements. Without contraction to FMA, so all instruction sets
/// produce the same bits.
template <class T>
struct Sweep {
  void (*ema)(std::int64_t n, T* shadow, const T* p, T decay);
  /// In f64, over sixteen interleaved partial sums.
  double (*sum_squares)(std::int64_t n, const T* x);
};

LOCKSTEP_KERNELS(Sweep, sweep)
LOCKSTEP_EACH_ISA(template <template <class> class Step, class T>
                  void update(std::int64_t n, T* p, T* a, T* b, const T* g, const Step<T>& step);)

/// Updates n elements, likewise. a and b are the states of the rule; those that it lacks are null.
template <template <class> class Step, class T>
void active_update(std::int64_t n, T* p, T* a, T* b, const T* g, const Step<T>& step) {
  LOCKSTEP_ACTIVE(update(n, p, a, b, g, step));
}
/// INSTANTIATE(Step, T); for each rule.
#define LOCKSTEP_EACH_STEP(INSTANTIATE, T) \
  INSTANTIATE(AdamStep, T);                \
  INSTANTIATE(AdamAtan2Step, T);           \
  INSTANTIATE(SgdStep, T);                 \
  INSTANTIATE(MomentumStep, T);

}  // namespace lockstep::optim_kernels
