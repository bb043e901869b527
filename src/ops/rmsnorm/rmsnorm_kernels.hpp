#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

template <class T>
struct RmsnormKernels {
  /// branch and rstd may be null.
  void (*forward)(std::int64_t rows, std::int64_t columns, T* y, T* rstd, const T* x, const T* branch, T eps);
  /// Adds to a target if its flag is set, else stores; either target may be null.
  void (*backward)(std::int64_t rows, std::int64_t columns, T* dx, bool add_x, T* dbranch, bool add_branch, const T* dy,
                   const T* y, const T* rstd);
};

LOCKSTEP_KERNELS(const RmsnormKernels<T>&, rmsnorm_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// As on the CPU. branch, rstd, dx and dbranch may be null.
template <class T>
void rmsnorm_forward(const Stream& stream, std::int64_t rows, std::int64_t columns, T* y, real_t<T>* rstd, const T* x,
                     const T* branch, real_t<T> eps);
template <class T>
void rmsnorm_backward(const Stream& stream, std::int64_t rows, std::int64_t columns, T* dx, bool add_x, T* dbranch,
                      bool add_branch, const T* dy, const T* y, const real_t<T>* rstd);

}  // namespace lockstep::ops::cuda
