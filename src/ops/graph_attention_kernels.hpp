#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace lockstep::ops::cpu {

/// logits[place[i]] = heads[head_slot[i]] . tails[tail_slot[i]] for i < n, rows of k.
template <class T>
using PairDotsKernel = void (*)(std::int64_t n, std::int64_t k, T* logits, const std::int64_t* place, const T* heads,
                                const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot);

LOCKSTEP_EACH_ISA(template <class T> PairDotsKernel<T> pair_dots_kernel();)

template <class T>
PairDotsKernel<T> active_pair_dots_kernel() {
  return LOCKSTEP_ACTIVE(pair_dots_kernel<T>());
}

}  // namespace lockstep::ops::cpu
