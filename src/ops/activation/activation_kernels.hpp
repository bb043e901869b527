#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// y_i = f(x_i) and, unless derivative is null, derivative_i = f'(x_i). y may be x.
template <class T>
using ActivationKernel = void (*)(std::int64_t n, T* y, T* derivative, const T* x);
/// dx_i = dy_i d_i, stored, or added if `accumulate`. dx may be dy.
template <class T>
using MultiplyKernel = void (*)(std::int64_t n, T* dx, const T* dy, const T* d, bool accumulate);

LOCKSTEP_KERNELS(MultiplyKernel, multiply_kernel)
LOCKSTEP_EACH_ISA(template <class T> ActivationKernel<T> activation_kernel(Activation activation);)

/// Null for Activation::none.
template <class T>
ActivationKernel<T> active_activation_kernel(Activation activation) {
  return LOCKSTEP_ACTIVE(activation_kernel<T>(activation));
}

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// As ActivationKernel, and also for Activation::none.
template <class T>
void activation_forward(const Stream& stream, std::int64_t n, T* y, T* derivative, const T* x, Activation activation);
/// As MultiplyKernel.
template <class T>
void multiply(const Stream& stream, std::int64_t n, T* dx, const T* dy, const T* d, bool accumulate);

}  // namespace lockstep::ops::cuda
