#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A tile of scores: M tokens by K candidates, the first of which is candidate `first` of all.
template <class T>
struct ScoreTile {
  std::int64_t tokens, candidates, first;
  const std::int32_t* pos;  ///< (tokens)
  const std::int32_t* ids;  ///< (candidates), or null: candidate j is item first + j + 1
  const T* bias;            ///< (candidates), or null
};

namespace cpu {

template <class T>
struct ItemSoftmaxKernels {
  /// Updates each token's largest score and sum of exp(score - largest) with the tile. Overwrites the scores.
  void (*update)(const ScoreTile<T>& tile, T* scores, T* largest, T* sum);
  /// Replaces scores z by scale exp(z - lse), or 0 for the next item and for tokens without one.
  void (*probabilities)(const ScoreTile<T>& tile, T* scores, const T* lse, T scale);
  /// Adds a part's sums (n tokens) to `largest` and `sum`. Leaves out tokens without a next item.
  void (*merge)(std::int64_t n, const std::int32_t* pos, T* largest, T* sum, const T* part_largest, const T* part_sum);
};
LOCKSTEP_KERNELS(ItemSoftmaxKernels, item_softmax_kernels)

}  // namespace cpu

namespace cuda {

template <class R>
void item_softmax_update(const Stream& stream, const ScoreTile<R>& tile, R* scores, R* largest, R* sum);
/// probabilities (M, K) receives dloss exp(z - lse); for f32 and f64 it may be `scores`.
template <class T>
void item_softmax_probabilities(const Stream& stream, const ScoreTile<real_t<T>>& tile, T* probabilities,
                                const real_t<T>* scores, const real_t<T>* lse, const real_t<T>* dloss);
/// Begins the state from the next items' scores in row 2: each is the largest score so far, with the sum 1.
template <class R>
void item_softmax_start(const Stream& stream, std::int64_t tokens, R* state);
/// Computes the loss from the final sums, and stores the logarithms of the sums and the slopes in the state.
template <class R>
void item_softmax_finish(const Stream& stream, std::int64_t tokens, const Tensor& loss, R* state,
                         const std::int32_t* pos);

}  // namespace cuda
}  // namespace lockstep::ops
