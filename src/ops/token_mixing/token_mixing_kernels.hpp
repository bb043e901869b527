#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops {

struct MixShape {
  std::int64_t sequences, positions, channels, width;  ///< B, T, D, I
};

namespace cpu {

/// Some adjacent channels of one sequence. Pointers to x, y, dx and dy are to the first of them; a position is `stride`
/// elements after the previous one. Other arrays (positions, channels) are contiguous.
template <class T>
struct TokenMixingKernels {
  /// y = x + branch, each channel scaled to a root mean square of 1. rstd may be null.
  void (*normalise)(std::int64_t positions, std::int64_t channels, std::int64_t stride, T* y, T* rstd, const T* x,
                    const T* branch, T eps);
  /// dv, the gradient of x + branch.
  void (*slopes)(std::int64_t positions, std::int64_t channels, std::int64_t stride, T* dv, const T* dy, const T* y,
                 const T* rstd);
  /// dx (+)= a + b
  void (*put_sum)(std::int64_t positions, std::int64_t channels, std::int64_t stride, T* dx, bool add, const T* a,
                  const T* b);
};

LOCKSTEP_KERNELS(TokenMixingKernels, token_mixing_kernels)

}  // namespace cpu

namespace cuda {

/// kept and rstd may be null.
template <class T>
void token_mixing_forward(const Stream& stream, const MixShape& s, T* y, T* kept, real_t<T>* rstd, const T* x,
                          const T* gate_up, const T* down, real_t<T> eps);
/// dx may be null; dgate_up and ddown too, both or none.
template <class T>
void token_mixing_backward(const Stream& stream, const MixShape& s, T* dx, bool add_x, real_t<T>* dgate_up, bool add_up,
                           real_t<T>* ddown, bool add_down, const T* dy, const T* y, T* kept, const real_t<T>* rstd,
                           const T* x, const T* gate_up, const T* down);

}  // namespace cuda
}  // namespace lockstep::ops
