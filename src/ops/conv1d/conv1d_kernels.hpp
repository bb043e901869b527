#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops {

struct ConvShape {
  std::int64_t rows, channels, kernel, length;
};

namespace cpu {

/// Kernels of one-channel convolutions: y, da (rows, channels, length); x, dx (rows, length); weight, dweight
/// (channels, kernel); bias, dbias (channels).
template <class T>
struct Conv1dKernels {
  /// bias may be null.
  void (*forward)(const ConvShape& s, T* y, const T* x, const T* weight, const T* bias);
  /// dx is stored, or added if `accumulate`: the transposed convolution of da.
  void (*backward_input)(const ConvShape& s, T* dx, const T* da, const T* weight, bool accumulate);
  /// The gradients are added to dweight and dbias; each may be null.
  void (*backward_params)(const ConvShape& s, T* dweight, T* dbias, const T* da, const T* x);
};

LOCKSTEP_KERNELS(Conv1dKernels, conv1d_kernels)

}  // namespace cpu

namespace cuda {

/// bias and derivative may be null.
template <class T>
void conv1d_forward(const Stream& stream, const ConvShape& s, T* y, T* derivative, const T* x, const T* weight,
                    const T* bias, Activation activation);
/// dy *= derivative (unless null), then computes the gradients that are not null.
template <class T>
void conv1d_backward(const Stream& stream, const ConvShape& s, T* dx, bool add_dx, real_t<T>* dweight, bool add_dweight,
                     real_t<T>* dbias, bool add_dbias, T* dy, const T* derivative, const T* x, const T* weight);

}  // namespace cuda
}  // namespace lockstep::ops
