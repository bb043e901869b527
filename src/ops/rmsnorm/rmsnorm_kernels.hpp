#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops {

/// to = (y + a) + b, where y is the result of a norm. b may be null. A null `to` means no sum.
template <class T>
struct RowSum {
  T* to;
  const T *a, *b;
};

}  // namespace lockstep::ops

namespace lockstep::ops::cpu {

template <class T>
struct RmsnormKernels {
  /// rstd may be null.
  void (*forward)(std::int64_t rows, std::int64_t columns, T* y, T* rstd, const T* x, T eps, RowSum<T> sum);
  /// Adds to dx if the flag is set, else stores.
  void (*backward)(std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy, const T* y, const T* rstd);
};

LOCKSTEP_KERNELS(RmsnormKernels, rmsnorm_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// As on the CPU.
template <class T>
void rmsnorm_forward(const Stream& stream, std::int64_t rows, std::int64_t columns, T* y, real_t<T>* rstd, const T* x,
                     real_t<T> eps, RowSum<T> sum);
template <class T>
void rmsnorm_backward(const Stream& stream, std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy,
                      const T* y, const real_t<T>* rstd);

}  // namespace lockstep::ops::cuda
