#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// The elements of a host's tensor where the arena's device computes with them: t itself on the CPU, else a copy in the
/// arena, made in the stream's order.
inline Tensor on_device(const Stream& stream, Arena& arena, const Tensor& t) {
  if (!arena.device().is_cuda()) return t;
  const Tensor there = allocate(arena, t.dtype(), t.shape());
  copy(stream, there, t);
  return there;
}

}  // namespace lockstep
