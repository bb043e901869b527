#pragma once
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Elements [begin, end) of a flat parameter vector.
struct FlatRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

/// The elements [begin, end) of the flat vectors that one thread, or one block of a GPU, updates. The state of element
/// i is at i - begin + state. With row > 0 the elements are rows of this length, and rows with a zero gradient are
/// unchanged, or changed later (SparseRows).
struct FlatChunk {
  std::int64_t begin, end, state, row = 0;
};

/// One step of all chunks on a GPU.
struct GpuSweep {
  Stream stream;
  const FlatChunk* chunks;  ///< device memory
  std::int64_t count;
  Tensor values, gradient;    ///< the flat vectors
  Tensor average;             ///< Ema::flat(), or empty
  double decay = 0;           ///< Ema::decay()
  const void* now = nullptr;  ///< optim_kernels::UpdateNow in device memory, in place of the scalars of the call
};

}  // namespace lockstep
