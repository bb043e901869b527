#pragma once
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Sums over the columns of one sample's rows, in f64.
struct PairSums {
  double margin;   ///< r_u . r_j - r_u . r_i
  double squares;  ///< |r_u|^2 + |r_i|^2 + |r_j|^2
};

/// Kernels for rows of n columns.
template <class T>
struct BprKernels {
  PairSums (*sums)(std::int64_t n, const T* user, const T* liked, const T* other);
  void (*scale)(std::int64_t n, T* to, const T* row, T factor);                     ///< to = factor row
  void (*add)(std::int64_t n, T* to, const T* row, T factor);                       ///< to += factor row
  void (*add_difference)(std::int64_t n, T* to, const T* a, const T* b, T factor);  ///< to += factor (a - b)
};

LOCKSTEP_KERNELS(BprKernels, bpr_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

template <class T>
struct RankedRows {
  const T* x;  ///< (U, width)
  std::int64_t width;
  double l2;
};

/// drows is not computed if it is null. terms (B) is scratch memory.
template <class T>
void bpr(const Stream& stream, const RankedPairs& batch, const RankedRows<T>& rows, T* slope, T* drows,
         RankingSums* terms);
void sum_rankings(const Stream& stream, RankingSums* sums, RankingSums* copy, std::span<const RankingSums> terms);

}  // namespace lockstep::ops::cuda
