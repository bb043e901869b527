#pragma once
#include <cstdint>

namespace lockstep::ops::cpu {

/// Cached memory for `count` values that are computed from `weight` and others, valid while the thread's PackedWeights
/// lives. Null if there is no PackedWeights or the cache is full. fill: whether the caller has to compute the values.
template <class T>
T* cached_values(const T* weight, std::int64_t count, bool& fill);

}  // namespace lockstep::ops::cpu
