#pragma once
#include <cstdint>

#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// y_i = f(x_i) and, unless derivative is null, derivative_i = f'(x_i). y may be x.
template <class T>
using ActivationKernel = void (*)(std::int64_t n, T* y, T* derivative, const T* x);
/// first_i = f'(x_i), second_i = f''(x_i).
template <class T>
using SlopesKernel = void (*)(std::int64_t n, T* first, T* second, const T* x);

LOCKSTEP_EACH_ISA(template <class T> ActivationKernel<T> activation_kernel(Activation activation);
                  template <class T> SlopesKernel<T> slopes_kernel(Activation activation);)

/// Null for Activation::none.
template <class T>
ActivationKernel<T> active_activation_kernel(Activation activation) {
  return LOCKSTEP_ACTIVE(activation_kernel<T>(activation));
}
template <class T>
SlopesKernel<T> active_slopes_kernel(Activation activation) {
  return LOCKSTEP_ACTIVE(slopes_kernel<T>(activation));
}

}  // namespace lockstep::ops::cpu
