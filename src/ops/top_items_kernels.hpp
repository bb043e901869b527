#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace lockstep::ops::cpu {

/// Appends the numbers first + i of the scores (n) above `threshold`, ascending, and the scores; returns how many.
template <class T>
using AboveKernel = std::int64_t (*)(std::int64_t n, const T* scores, T threshold, std::int32_t first,
                                     std::int32_t* item, T* score);

LOCKSTEP_EACH_ISA(template <class T> AboveKernel<T> above_kernel();)

template <class T>
AboveKernel<T> active_above_kernel() {
  return LOCKSTEP_ACTIVE(above_kernel<T>());
}

}  // namespace lockstep::ops::cpu
