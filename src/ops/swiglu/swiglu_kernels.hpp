#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

template <class T>
struct SwigluKernels {
  /// y (rows, width) from gate_up (rows, 2 width).
  void (*forward)(std::int64_t rows, std::int64_t width, T* y, const T* gate_up);
  /// gate_up is overwritten with its gradient.
  void (*backward)(std::int64_t rows, std::int64_t width, T* gate_up, const T* dy);
};

LOCKSTEP_KERNELS(const SwigluKernels<T>&, swiglu_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// The products of the layer by cuBLASLt, and the gate. gate_up may be null. m rows, 2 width outputs, k inputs.
template <class T>
void swiglu_forward(const Stream& stream, std::int64_t m, std::int64_t width, std::int64_t k, T* y, T* gate_up,
                    const T* x, const T* weight);
/// y (rows, width) from gate_up (rows, 2 width).
template <class T>
void swiglu_gate_forward(const Stream& stream, std::int64_t rows, std::int64_t width, T* y, const T* gate_up);
/// gate_up is overwritten with its gradient.
template <class T>
void swiglu_gate_backward(const Stream& stream, std::int64_t rows, std::int64_t width, T* gate_up, const T* dy);

}  // namespace lockstep::ops::cuda
