#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/attention.hpp"

namespace lockstep {

using ops::AttentionOptions;

/// Full attention between all positions, see ops/attention.hpp. shapes  q, k, v (B, T, A) -> (B, T, A)
Var attention(Tape& tape, Var q, Var k, Var v, const AttentionOptions& options);
/// Full attention with concatenated queries, keys and values. shapes  qkv (B, T, 3 A) -> (B, T, A)
Var attention(Tape& tape, Var qkv, const AttentionOptions& options);

}  // namespace lockstep
