#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// The rotations of queries and keys in rotary_linear(). Empty tables mean no rotation.
struct RopeTable {
  OwnedTensor cos, sin;  ///< (T, d/2)
};
/// Computes the table for T = positions and d = head_width. errors  Error if head_width is odd
RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta,
                          Device device = {});

/// qkv = x weight^T with q and k rotated by their positions, see ops/rope.hpp. The table must outlive the tape.
///
/// shapes   x (B, T, D), weight (3D, D) -> (B, T, 3D) = [q | k | v], each with D / head_width heads
Var rotary_linear(Tape& tape, Var x, const Param& weight, const RopeTable& table);

}  // namespace lockstep
