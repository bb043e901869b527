#pragma once
#include "lockstep/ops/bpr.hpp"

namespace lockstep::ops::cuda {

template <class T>
struct RankedRows {
  const T* x;  ///< (U, width)
  std::int64_t width;
  double l2;
};

/// A null drows is not computed. terms (B) is scratch memory.
template <class T>
void bpr(const Stream& stream, const RankedPairs& batch, const RankedRows<T>& rows, T* slope, T* drows,
         RankingSums* terms);
void sum_rankings(const Stream& stream, RankingSums* sums, RankingSums* copy, std::span<const RankingSums> terms);

}  // namespace lockstep::ops::cuda
