#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Runs rounds of independent fused multiply-adds on registers. Returns the number of floating-point operations. Stores
/// a value in `sink` so that the compiler cannot remove them.
LOCKSTEP_EACH_ISA(template <class T> double fma_rounds(std::int64_t rounds, double* sink);)

template <class T>
double active_fma_rounds(std::int64_t rounds, double* sink) {
  return LOCKSTEP_ACTIVE(fma_rounds<T>(rounds, sink));
}

}  // namespace lockstep::ops::cpu
