#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/attention.hpp"

namespace lockstep {

using ops::AttentionOptions;

/// Full attention between all positions, see ops/attention.hpp. shapes  qkv (B, T, 3 A) -> (B, T, A)
Var attention(Tape& tape, Var qkv, const AttentionOptions& options);

}  // namespace lockstep
