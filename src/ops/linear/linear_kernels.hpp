#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/sample_rows.hpp"

namespace lockstep::ops::cuda {

/// M rows, N outputs, K inputs.
struct LinearShape {
  std::int64_t m, n, k;
};

/// bias, residual and derivative may be null.
template <class T>
void linear_forward(const Stream& stream, const LinearShape& s, T* y, T* derivative, const T* x, const T* weight,
                    const T* bias, const T* residual, Activation activation, const Dropout& dropout,
                    const SampleRows& rows);
/// dy *= derivative (unless null); sums_n (+)= column sums (unless null).
template <class T>
void scale_and_sum(const Stream& stream, std::int64_t m, std::int64_t n, T* dy, const T* derivative, real_t<T>* sums,
                   bool accumulate);

/// Where a gradient goes, or null.
template <class T>
struct Gradient {
  real_t<T>* to;
  bool accumulate;
};
/// dy *= derivative (unless null); then dw (N, K) (+)= dy' x and db (N) (+)= column sums of dy.
template <class T>
void linear_gradients(const Stream& stream, const LinearShape& s, T* dy, const T* derivative, const T* x,
                      const Gradient<T>& dw, const Gradient<T>& db);

}  // namespace lockstep::ops::cuda
