#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// The rotations of queries and keys, see AttentionOptions. Empty tables mean no rotation.
struct RopeTable {
  OwnedTensor cos, sin;  ///< (T, d/2)
};
/// Computes the table for T = positions and d = head_width. errors  Error if head_width is odd
RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta,
                          Device device = {});

}  // namespace lockstep
