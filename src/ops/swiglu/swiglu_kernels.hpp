#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops {

/// M rows, 2 width outputs, K inputs.
struct SwigluShape {
  std::int64_t m, width, k;
};

}  // namespace lockstep::ops

namespace lockstep::ops::cpu {

template <class T>
struct SwigluKernels {
  /// y (rows, width) from gate_up (rows, 2 width).
  void (*forward)(std::int64_t rows, std::int64_t width, T* y, const T* gate_up);
  /// gate_up is overwritten with its gradient.
  void (*backward)(std::int64_t rows, std::int64_t width, T* gate_up, const T* dy);
};

LOCKSTEP_KERNELS(SwigluKernels, swiglu_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// The norm of the rows of a gated layer's input; a null x means no norm. With a norm, gate_up is the product of the
/// rows before the norm.
template <class T>
struct RowNorm {
  const T* x = nullptr;
  T* z = nullptr;             ///< the normalised rows
  real_t<T>* rstd = nullptr;  ///< may be null
  std::int64_t columns = 0;
  real_t<T> eps = 0;
};
/// The backward of the norm; a null x means no norm. dz is the gradient of z except the part through gate and up. dx,
/// unless null, receives the gradient of x through dz, stored or added, to which the product with the weight is added.
template <class T>
struct RowSlope {
  const T* x = nullptr;
  const real_t<T>* rstd = nullptr;
  std::int64_t columns = 0;
  const T* dz = nullptr;
  T* dx = nullptr;
  bool add = false;
};

/// The product of the layer by cuBLASLt, and the gate. gate_up may be null.
template <class T>
void swiglu_forward(const Stream& stream, const SwigluShape& s, T* y, T* gate_up, const T* x, const T* weight,
                    const RowNorm<T>& norm);
/// y (rows, width) from gate_up (rows, 2 width).
template <class T>
void swiglu_gate_forward(const Stream& stream, std::int64_t rows, std::int64_t width, T* y, const T* gate_up,
                         const RowNorm<T>& norm);
/// gate_up is overwritten with its gradient.
template <class T>
void swiglu_gate_backward(const Stream& stream, std::int64_t rows, std::int64_t width, T* gate_up, const T* dy,
                          const RowSlope<T>& norm);

}  // namespace lockstep::ops::cuda
