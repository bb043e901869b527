#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/causal_attention.hpp"

namespace lockstep {

using ops::CausalAttention;

/// The time-aware part of an attention: its tables are parameters, see ops/causal_attention.hpp.
struct TimeTables {
  const Param* keys = nullptr;
  const Param* values = nullptr;
  std::span<const std::int64_t> times;
  ops::TimeBuckets::Drop drop = ops::TimeBuckets::Drop::element;
  ops::Dropout dropout;
};

/// See ops/causal_attention.hpp. What `attention` and `time` point to outlives the tape.
/// shapes  q, k, v (N, C) -> (N, C)
Var causal_attention(Tape& tape, Var q, Var k, Var v, const CausalAttention& attention, const TimeTables& time = {});

}  // namespace lockstep
