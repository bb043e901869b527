#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Serial kernels on arrays of n elements. y may be an input.
template <class T>
struct ElementwiseKernels {
  /// y_i = (a_i + b_i) + c_i; c may be null.
  void (*add)(std::int64_t n, T* y, const T* a, const T* b, const T* c);
  /// y_i (+)= factor x_i, the product rounded
  void (*scale)(std::int64_t n, T* y, const T* x, T factor, bool accumulate);
  /// sum_i a_i b_i
  T (*dot)(std::int64_t n, const T* a, const T* b);
};

LOCKSTEP_KERNELS(ElementwiseKernels, elementwise_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// y_i (+)= factor x_i, times *by unless by is null. x has type T or real_t<T>.
template <class T, class X>
void scale(const Stream& stream, std::int64_t n, T* y, const X* x, real_t<T> factor, const real_t<T>* by,
           bool accumulate);
/// As on the CPU.
template <class T>
void add(const Stream& stream, std::int64_t n, T* y, const T* a, const T* b, const T* c);

}  // namespace lockstep::ops::cuda
