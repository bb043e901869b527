#pragma once
#include <cstdint>

#include "lockstep/ops/isa.hpp"

namespace lockstep::optim_kernels {

/// Scalars of one Adam step, already in the type of the sweep.
template <class T>
struct AdamStep {
  T scale;                       ///< of the gradient
  T l2;                          ///< coupled weight decay: g += l2 p
  T shrink;                      ///< decoupled weight decay: p *= shrink
  T beta1, rest1, beta2, rest2;  ///< rest = 1 - beta
  T rate;                        ///< lr / (1 - beta1^t)
  T root;                        ///< 1 / sqrt(1 - beta2^t)
  T eps;
};

/// Scalars of one Adam-atan2 step.
template <class T>
struct AdamAtan2Step {
  T scale;         ///< of the gradient
  T shrink;        ///< decoupled weight decay: p *= shrink
  T rest1, rest2;  ///< 1 - beta
  T unbias;        ///< of the first moment inside the arc tangent
  T rate;          ///< of the arc tangent
  T root;          ///< 1 / sqrt(1 - beta2^t)
};

template <class T>
struct SgdStep {
  T scale, l2, lr, momentum;
  bool first;  ///< the buffer starts as the gradient
};

/// Elementwise over n elements, without contraction: the same bits under every instruction set.
template <class T>
struct Sweep {
  void (*adam)(std::int64_t n, T* p, T* m, T* v, const T* g, const AdamStep<T>& s);
  void (*adam_atan2)(std::int64_t n, T* p, T* m, T* v, const T* g, const AdamAtan2Step<T>& s);
  /// buffer may be null: no momentum
  void (*sgd)(std::int64_t n, T* p, T* buffer, const T* g, const SgdStep<T>& s);
  void (*ema)(std::int64_t n, T* shadow, const T* p, T decay);
  /// In double, over sixteen interleaved partial sums: the same bits under every instruction set.
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
