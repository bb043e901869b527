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

/// What one thread, or one block of a GPU, updates: elements [begin, end) of the flat vectors; the state of element i is
/// at i - begin + state. With row > 0 they are rows of this length, and those without gradient are left alone.
struct FlatPiece {
  std::int64_t begin, end, state, row = 0;
};

/// One step of all pieces at once on a GPU.
struct GpuSweep {
  Stream stream;
  const FlatPiece* pieces;  ///< in the GPU's memory
  std::int64_t count;
  Tensor values, gradient;  ///< the flat vectors
  Tensor average;           ///< of Ema, or empty
  double decay = 0;         ///< of Ema
};

}  // namespace lockstep
