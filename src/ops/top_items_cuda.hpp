#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// Scores of some users for items [first, first + width), and the best so far.
template <class T>
struct BestItems {
  std::int64_t users, first, width, k;
  T* scores;                     ///< (users, width); those of excluded items are overwritten
  const std::int64_t* left_ptr;  ///< (users + 1)
  const std::int32_t* left_out;  ///< ascending items of each user that are excluded
  T* best;                       ///< (users, k), best first; kept from call to call
  std::int32_t *item, *found;    ///< (users, k) their items, -1 behind the last; (users) how many there are
};

/// Most items that a user can have.
inline constexpr std::int64_t kMostBestItems = 2048;

/// The best k of what has been found, nothing when `first` is 0, and these scores.
template <class T>
void keep_best(const Stream& stream, const BestItems<T>& best);

}  // namespace lockstep::ops::cuda
