#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// first_i = f'(x_i), second_i = f''(x_i).
template <class T>
using SlopesKernel = void (*)(std::int64_t n, T* first, T* second, const T* x);
/// da_i (+)= second_i sum_k s_ki dt_ki over k < directions.
template <class T>
using TangentBackwardKernel = void (*)(std::int64_t n, std::int64_t directions, T* da, const T* dt, const T* s,
                                       const T* second, bool accumulate);

LOCKSTEP_KERNELS(TangentBackwardKernel, tangent_backward_kernel)
LOCKSTEP_EACH_ISA(template <class T> SlopesKernel<T> slopes_kernel(Activation activation);)

/// Null for Activation::none.
template <class T>
SlopesKernel<T> active_slopes_kernel(Activation activation) {
  return LOCKSTEP_ACTIVE(slopes_kernel<T>(activation));
}

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// As SlopesKernel, and also for Activation::none.
template <class T>
void activation_slopes(const Stream& stream, std::int64_t n, T* first, T* second, const T* x, Activation activation);
/// t_ki = s_ki first_i for k < directions, stored, or added if `accumulate`.
template <class T>
void activation_tangent(const Stream& stream, std::int64_t n, std::int64_t directions, T* t, const T* s, const T* first,
                        bool accumulate);
/// As TangentBackwardKernel.
template <class T>
void tangent_backward(const Stream& stream, std::int64_t n, std::int64_t directions, T* da, const T* dt, const T* s,
                      const T* second, bool accumulate);

}  // namespace lockstep::ops::cuda
