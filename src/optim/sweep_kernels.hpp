#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "optim/adam_rule.hpp"
#include "optim/sgd_rule.hpp"

namespace lockstep::optim_kernels {

/// Kernels of one instruction set, elementwise over n elements. Without contraction to FMA, so all instruction sets
/// produce the same bits.
template <class T>
struct Sweep {
  void (*adam)(std::int64_t n, T* p, T* m, T* v, const T* g, const AdamStep<T>& s);
  void (*adam_atan2)(std::int64_t n, T* p, T* m, T* v, const T* g, const AdamAtan2Step<T>& s);
  /// `buffer` is null without momentum.
  void (*sgd)(std::int64_t n, T* p, T* buffer, const T* g, const SgdStep<T>& s);
  void (*ema)(std::int64_t n, T* shadow, const T* p, T decay);
  /// In f64, over sixteen interleaved partial sums.
  double (*sum_squares)(std::int64_t n, const T* x);
};

LOCKSTEP_KERNELS(Sweep, sweep)

}  // namespace lockstep::optim_kernels
