#pragma once
#include "lockstep/ops/transr.hpp"

namespace lockstep::ops::cuda {

template <class T>
struct TransrArrays {
  std::int64_t d, k;
  const T *table, *matrices, *translations;
  T *projected, *score, *drows, *drelations;  ///< null: not wanted
  double l2, scale;                           ///< scale: 1 / total
};

template <class T>
void transr(const Stream& stream, const RelationSamples& samples, const TransrArrays<T>& arrays, RankingSums* sums);

}  // namespace lockstep::ops::cuda
