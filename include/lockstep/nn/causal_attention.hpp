#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/causal_attention.hpp"

namespace lockstep {

using ops::CausalAttention;

/// The time-aware terms of causal attention; their tables are parameters. See ops/causal_attention.hpp.
struct TimeTables {
  const Param* keys = nullptr;
  const Param* values = nullptr;
  std::span<const std::int64_t> times;
  ops::TimeBuckets::Drop drop = ops::TimeBuckets::Drop::element;
  ops::Dropout dropout;
  Tensor prepared = {};  ///< see prepare_times()
};

/// Prepares the time tables for all blocks of a step, for TimeTables::prepared. Empty on the CPU.
Tensor prepare_times(Tape& tape, const CausalAttention& attention, const TimeTables& time);

/// Causal attention, see ops/causal_attention.hpp. The memory that `attention` and `time` refer to must outlive the
/// tape.
///
/// shapes   q (N, C), kv (N, 2 C) -> (N, C); or q (N, 3 C) with kv empty
Var causal_attention(Tape& tape, Var q, Var kv, const CausalAttention& attention, const TimeTables& time = {});

}  // namespace lockstep
