#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace lockstep::ops::cpu {

template <class T>
struct TopItemsKernels {
  /// Appends the numbers first + i of the scores (n) above `threshold`, ascending, and the scores; returns how many.
  std::int64_t (*above)(std::int64_t n, const T* scores, T threshold, std::int32_t first, std::int32_t* item, T* score);
  /// Moves the best k of n > k candidates to the front, in the order that they have; of equal scores the first. Returns a
  /// number that all of them but those of the least score lie above, and no other candidate.
  T (*keep)(std::int64_t n, std::int64_t k, std::int32_t* item, T* score);
};

LOCKSTEP_EACH_ISA(template <class T> TopItemsKernels<T> top_items_kernels();)

template <class T>
TopItemsKernels<T> active_top_items_kernels() {
  return LOCKSTEP_ACTIVE(top_items_kernels<T>());
}

}  // namespace lockstep::ops::cpu
