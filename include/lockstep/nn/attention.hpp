#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/attention.hpp"

namespace lockstep {

using ops::AttentionOptions;

/// Attention of every position to every position, see ops/attention.hpp. shapes  q, k, v (B, T, A) -> (B, T, A)
Var attention(Tape& tape, Var q, Var k, Var v, const AttentionOptions& options);
/// The same from queries, keys and values side by side. shapes  qkv (B, T, 3 A) -> (B, T, A)
Var attention(Tape& tape, Var qkv, const AttentionOptions& options);

}  // namespace lockstep
