#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Serial kernels on N rows of C columns. mean and rstd may be null in the forward.
template <class T>
struct LayerNormKernels {
  void (*forward)(std::int64_t n, std::int64_t c, T* y, T* mean, T* rstd, const T* x, const T* gamma, const T* beta,
                  T eps);
  /// dx (unless null) is stored, or added if `accumulate`. dgamma and dbeta of these rows are added to sums (2 C),
  /// unless null.
  void (*backward)(std::int64_t n, std::int64_t c, T* dx, bool accumulate, T* sums, const T* dy, const T* x,
                   const T* mean, const T* rstd, const T* gamma);
};

LOCKSTEP_KERNELS(LayerNormKernels, layernorm_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

template <class T>
void layernorm_forward(const Stream& stream, std::int64_t n, std::int64_t c, T* y, real_t<T>* mean, real_t<T>* rstd,
                       const T* x, const T* gamma, const T* beta, real_t<T> eps);
/// dx may be null, and dgamma and dbeta may both be null, and so may derivative and sums.
template <class T>
void layernorm_backward(const Stream& stream, std::int64_t n, std::int64_t c, T* dx, bool accumulate, real_t<T>* dgamma,
                        bool add_gamma, real_t<T>* dbeta, bool add_beta, const T* dy, const T* x, const real_t<T>* mean,
                        const real_t<T>* rstd, const T* gamma, T* derivative, real_t<T>* sums, bool add_sums);

}  // namespace lockstep::ops::cuda
