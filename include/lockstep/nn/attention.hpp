#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/attention.hpp"
#include "lockstep/ops/causal_attention.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

using ops::AttentionOptions;

/// Full attention between all positions, see ops/attention.hpp. shapes  qkv (B, T, 3 A) -> (B, T, A)
Var attention(Tape& tape, Var qkv, const AttentionOptions& options);

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

/// The weighted mean of each sequence's tokens, see ops/token_pool.hpp; without scores the plain mean. Concatenates the
/// means of `abreast` consecutive sequences.
///
/// shapes   x (N, T, D), scores (N, T, 1) -> (N / abreast, abreast D)
/// errors   Error if N is not a multiple of abreast
Var token_pool(Tape& tape, Var x, Var scores = {}, std::int64_t abreast = 1);

/// The rotations of queries and keys, see AttentionOptions. Empty tables mean no rotation.
struct RopeTable {
  OwnedTensor cos, sin;  ///< (T, d/2)
};
/// Computes the table for T = positions and d = head_width. errors  Error if head_width is odd
RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta,
                          Device device = {});

}  // namespace lockstep
