#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Kernels for one sequence of T tokens of D columns.
template <class T>
struct TokenPoolKernels {
  /// z = sum_t w_t x_t
  void (*forward)(std::int64_t time, std::int64_t width, T* z, const T* w, const T* x);
  /// dx_t (+)= w_t dz and dscores_t (+)= w_t dz (x_t - z). A null gradient is not computed.
  void (*backward)(std::int64_t time, std::int64_t width, T* dx, bool add_dx, T* dscores, bool add_dscores, const T* dz,
                   const T* z, const T* w, const T* x);
};

LOCKSTEP_KERNELS(TokenPoolKernels, token_pool_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// scores may be null: all weights are then equal.
template <class T>
void token_pool_forward(const Stream& stream, std::int64_t sequences, std::int64_t time, std::int64_t width, T* z,
                        real_t<T>* w, const T* x, const T* scores);
/// A null gradient is not computed.
template <class T>
void token_pool_backward(const Stream& stream, std::int64_t sequences, std::int64_t time, std::int64_t width, T* dx,
                         bool add_dx, T* dscores, bool add_dscores, const T* dz, const T* z, const real_t<T>* w,
                         const T* x);

}  // namespace lockstep::ops::cuda
