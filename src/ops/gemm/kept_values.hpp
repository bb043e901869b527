#pragma once
#include <cstdint>

namespace lockstep::ops::cpu {

/// Memory for `count` values that are computed from `weight` and others, kept while a PackedWeights lives. Null if there
/// is none or no room. fill becomes whether they have to be computed.
template <class T>
T* kept_values(const T* weight, std::int64_t count, bool& fill);

}  // namespace lockstep::ops::cpu
