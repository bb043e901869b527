#pragma once
#include <cmath>
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/sample_rows.hpp"
#include "ops/common/philox_group.hpp"

namespace lockstep::ops::cpu {

/// A dropout rate in units of 1/65536.
struct DropRate {
  std::int32_t threshold = 0;  ///< an element is dropped if its draw is below this
  double scale = 1;            ///< factor of the kept elements
  explicit DropRate(double rate)
      : threshold(static_cast<std::int32_t>(std::lround(rate * 65536))), scale(65536.0 / (65536 - threshold)) {}
};

/// y_i = to_i + x_i keep_i scale for i < n, a sample's elements; a null `to` is 0. y may be x or `to`. The same
/// elements of `also` are dropped in place, unless it is null.
template <class T>
using DropoutKernel = void (*)(std::int64_t n, T* y, const T* to, const T* x, T* also, const PhiloxKey& key,
                               const DropRate& rate);

LOCKSTEP_KERNELS(DropoutKernel, dropout_kernel)

}  // namespace lockstep::ops::cpu
