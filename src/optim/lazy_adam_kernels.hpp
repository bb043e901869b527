#pragma once
#include <cstdint>

#include "lockstep/ops/isa.hpp"

namespace lockstep::optim_kernels {

/// A row of a table and the steps that it has taken.
struct LateRow {
  std::int64_t row, done;
};

/// Scalars of the steps that a row has missed: step i has rate[i] and root[i].
template <class T>
struct MissedSteps {
  const double *rate, *root;  ///< kStride apart
  std::int64_t count;
  std::int64_t calm_from;  ///< from this one on, every step makes the moves smaller
  T beta1, beta2, eps;
};
inline constexpr std::int64_t kStride = 2;

/// Steps between two looks at whether the values have come to rest.
inline constexpr std::int64_t kLook = 8;
/// Values below this might still be moved by a moment that has become denormal and no longer shrinks.
template <class T>
inline constexpr T kTiny = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

/// The steps of AdamStep with a gradient of 0, one after the other, over n elements: the same bits.
template <class T>
using ReplayKernel = void (*)(std::int64_t n, T* p, T* m, T* v, const MissedSteps<T>& s);

namespace generic {
template <class T>
ReplayKernel<T> replay_kernel();
}
namespace avx2 {
template <class T>
ReplayKernel<T> replay_kernel();
}
namespace avx512 {
template <class T>
ReplayKernel<T> replay_kernel();
}

template <class T>
ReplayKernel<T> active_replay_kernel() {
#if defined(__x86_64__)
  switch (ops::active_isa()) {
    case ops::Isa::avx512:
      return avx512::replay_kernel<T>();
    case ops::Isa::avx2:
      return avx2::replay_kernel<T>();
    case ops::Isa::generic:
      break;
  }
#endif
  return generic::replay_kernel<T>();
}

}  // namespace lockstep::optim_kernels
