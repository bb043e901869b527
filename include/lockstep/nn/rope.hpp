#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Rotary positions: what rotary_linear turns queries and keys by. Empty tables turn nothing.
struct RopeTable {
  OwnedTensor cos, sin;  ///< (T, d/2)
};
RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta,
                          Device device = {});

/// qkv = x weight^T, whose q and k are rotated by their position, see ops/rope.hpp. The table outlives the tape.
///
/// shapes  x (B, T, D), weight (3D, D) -> (B, T, 3D) = [q | k | v], each of D / head_width heads
Var rotary_linear(Tape& tape, Var x, const Param& weight, const RopeTable& table);

}  // namespace lockstep
