#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

template <class T>
struct TopItemsKernels {
  /// Appends the numbers first + i of the scores (n) above `threshold`, ascending, and these scores. Returns how many.
  std::int64_t (*above)(std::int64_t n, const T* scores, T threshold, std::int32_t first, std::int32_t* item, T* score);
  /// Moves the best k of n > k candidates to the front without reordering them; the first ones win a tie. Returns a
  /// lower bound of the kept scores that no other candidate exceeds.
  T (*keep)(std::int64_t n, std::int64_t k, std::int32_t* item, T* score);
};

LOCKSTEP_KERNELS(TopItemsKernels<T>, top_items_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// Scores of some users for items [first, first + width), and the best items so far.
template <class T>
struct BestItems {
  std::int64_t users, first, width, k;
  T* scores;                     ///< (users, width); those of excluded items are overwritten
  const std::int64_t* left_ptr;  ///< (users + 1)
  const std::int32_t* left_out;  ///< ascending items of each user that are excluded
  T* best;                       ///< (users, k), best first; kept from call to call
  std::int32_t *item, *found;    ///< (users, k) item numbers, -1 after the last; (users) how many were found
};

/// Largest k.
inline constexpr std::int64_t kMostBestItems = 2048;

/// Merges these scores into the best k so far, which are empty when `first` is 0.
template <class T>
void keep_best(const Stream& stream, const BestItems<T>& best);

}  // namespace lockstep::ops::cuda
