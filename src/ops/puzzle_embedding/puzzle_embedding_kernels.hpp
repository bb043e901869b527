#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// The arguments of ops/puzzle_embedding.hpp. tokens and ids may be pinned host memory.
struct PuzzleShape {
  std::int64_t batch, prefix, cells;        ///< B, P, S
  std::int64_t columns, width, vocabulary;  ///< D, W, V
  const std::int32_t *tokens, *ids;
};
/// puzzles and where may be null.
template <class T>
void puzzle_embedding_forward(const Stream& stream, const PuzzleShape& s, T* x, const T* table, const T* puzzles,
                              const T* where, real_t<T> scale);
/// Each target may be null.
template <class T>
void puzzle_embedding_backward(const Stream& stream, const PuzzleShape& s, real_t<T>* dpuzzle, real_t<T>* dtable,
                               real_t<T>* dwhere, const T* dx, real_t<T> scale);

}  // namespace lockstep::ops::cuda
