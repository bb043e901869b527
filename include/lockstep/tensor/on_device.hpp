#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Makes a host tensor accessible to operations on the arena's device: t itself on the CPU, on a GPU a copy in the
/// arena, enqueued on the stream.
inline Tensor on_device(const Stream& stream, Arena& arena, const Tensor& t) {
  if (!arena.device().is_cuda()) return t;
  const Tensor on_gpu = allocate(arena, t.dtype(), t.shape());
  copy(stream, on_gpu, t);
  return on_gpu;
}

}  // namespace lockstep
