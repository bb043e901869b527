#pragma once
#include <cstdint>

#include "lockstep/ops/isa.hpp"
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

namespace generic {
template <class T>
Sweep<T> sweep();
}
namespace avx2 {
template <class T>
Sweep<T> sweep();
}
namespace avx512 {
template <class T>
Sweep<T> sweep();
}

/// The kernels for the active instruction set.
template <class T>
Sweep<T> active() {
#if defined(__x86_64__)
  switch (ops::active_isa()) {
    case ops::Isa::avx512:
      return avx512::sweep<T>();
    case ops::Isa::avx2:
      return avx2::sweep<T>();
    case ops::Isa::generic:
      break;
  }
#endif
  return generic::sweep<T>();
}

}  // namespace lockstep::optim_kernels
