#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/transr.hpp"

namespace lockstep::ops::cpu {

/// Kernels around the products of TransR. `projected` and `dp` hold (n, k) heads, then tails, then corrupted tails.
template <class T>
struct TransrKernels {
  /// f = |h + y - t|^2, g = |h + y - t'|^2, squares = |h|^2 + |t|^2 + |t'|^2 of each sample.
  void (*distances)(std::int64_t n, std::int64_t k, double* f, double* g, double* squares, const T* projected,
                    const T* y);
  /// The gradient of sum_i slope_i (f_i - g_i) / 2 + decay times half the squares of projections and y: stored in dp,
  /// added to dy.
  void (*pull)(std::int64_t n, std::int64_t k, T* dp, T* dy, const T* projected, const T* y, const T* slope, T decay);
};

LOCKSTEP_KERNELS(TransrKernels, transr_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

template <class T>
struct TransrArrays {
  std::int64_t d, k;
  const T *table, *matrices, *translations;
  T *projected, *score, *drows, *drelations;  ///< null: not computed
  double l2, scale;                           ///< scale: 1 / total
};

template <class T>
void transr(const Stream& stream, const RelationSamples& samples, const TransrArrays<T>& arrays, RankingSums* sums);

}  // namespace lockstep::ops::cuda
