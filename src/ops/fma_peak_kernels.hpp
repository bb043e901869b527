#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace lockstep::ops::cpu {

/// Runs `turns` rounds of independent fused multiply-adds on registers; returns the floating-point operations done, and
/// through `sink` a value that keeps the compiler from leaving them out.
LOCKSTEP_EACH_ISA(template <class T> double fma_rounds(std::int64_t turns, double* sink);)

template <class T>
double active_fma_rounds(std::int64_t turns, double* sink) {
  return LOCKSTEP_ACTIVE(fma_rounds<T>(turns, sink));
}

}  // namespace lockstep::ops::cpu
