#pragma once
#include <type_traits>

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/f16.hpp"

namespace lockstep {

/// The type in which an operation computes on values stored as T: double for f64, float for f32, bf16 and f16.
template <class T>
using real_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace lockstep
