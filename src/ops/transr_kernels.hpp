#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace lockstep::ops::cpu {

/// Around the products of TransR. `projected` and `dp` hold (n, k) heads, then tails, then other tails.
template <class T>
struct TransrKernels {
  /// f = |h + y - t|^2, g = |h + y - t'|^2, squares = |h|^2 + |t|^2 + |t'|^2 of each sample.
  void (*distances)(std::int64_t n, std::int64_t k, double* f, double* g, double* squares, const T* projected,
                    const T* y);
  /// Of sum_i slope_i (f_i - g_i) / 2 + decay times half the squares of projections and y: stored to dp, added to dy.
  void (*pull)(std::int64_t n, std::int64_t k, T* dp, T* dy, const T* projected, const T* y, const T* slope, T decay);
};

LOCKSTEP_EACH_ISA(template <class T> TransrKernels<T> transr_kernels();)

template <class T>
TransrKernels<T> active_transr_kernels() {
  return LOCKSTEP_ACTIVE(transr_kernels<T>());
}

}  // namespace lockstep::ops::cpu
