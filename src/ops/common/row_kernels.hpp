#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Serial kernels for a row of n elements.
template <class T>
struct RowKernels {
  /// y_i += factor x_i, the product rounded
  void (*add)(std::int64_t n, T* y, const T* x, T factor);
  /// sum_i a_i b_i
  T (*dot)(std::int64_t n, const T* a, const T* b);
};

LOCKSTEP_KERNELS(RowKernels, row_kernels)

}  // namespace lockstep::ops::cpu
