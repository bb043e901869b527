#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::optim_kernels {

/// Scalars of the deferred steps of a row: step i uses rate[i kStride] and root[i kStride].
template <class T>
struct MissedSteps {
  const double *rate, *root;  ///< kStride apart
  std::int64_t count;
  std::int64_t calm_from;  ///< from this step on, each step shrinks the moves
  T beta1, beta2, eps;
};
inline constexpr std::int64_t kStride = 2;

/// Steps between two tests for values that no longer change.
inline constexpr std::int64_t kLook = 8;
/// Upper bound on the move caused by a denormal moment, which no longer shrinks.
template <class T>
inline constexpr T kTiny = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

/// Applies the deferred steps to n elements, with the bits of AdamStep with a gradient of 0.
template <class T>
using ReplayKernel = void (*)(std::int64_t n, T* p, T* m, T* v, const MissedSteps<T>& s);

LOCKSTEP_KERNELS(ReplayKernel, replay_kernel)

}  // namespace lockstep::optim_kernels
