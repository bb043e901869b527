#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Queries, keys and values of all heads: three arrays (B, T, A), or one (B, T, 3 A) that holds them side by side as q
/// (k and v are then empty). Head h is columns h D .. h D + D - 1 of each, D = A / heads.
struct AttentionInput {
  Tensor q, k, v;
  bool packed() const { return k.shape().rank() == 0; }
};
/// Where their gradients go, in the same form. The targets of a packed input are that one.
struct AttentionTarget {
  Target q, k, v;
};

/// How attention is computed.
struct AttentionOptions {
  std::int64_t heads = 1;
  double scale = 1;                             ///< of q k^T before the softmax, 1/sqrt(D) as a rule
  Dropout dropout = {};                         ///< of the weights p; see ops/dropout.hpp for what is drawn
  std::span<const std::uint64_t> samples = {};  ///< (B) global numbers that key the draws; they outlive the tape
};

/// Softmax attention of every position to every position, without a mask, for all heads.
///
///   s_ij = scale sum_c q_ic k_jc,   p_ij = exp(s_ij - lse_i),   lse_i = log sum_j exp s_ij,   y_ic = sum_j p_ij v_jc
///
/// With dropout y_ic = sum_j m_ij p_ij v_jc, m_ij = keep_ij / (1 - rate). p is never stored for a whole sequence: the backward finds it again from lse. A sequence's result depends on that
/// sequence alone, in every bit. Called outside a parallel region, sequences and heads are shared among OpenMP's
/// threads.
///
/// shapes   x as AttentionInput says; y (B, T, A), heads side by side; lse (B, heads, T), or empty when no backward
///          follows. T and D are free
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with lse in f32: p and ds are then rounded before they multiply
/// errors   Error naming the shapes if they do not fit, or heads does not divide A; on a GPU if D is above 128
/// source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Dao et al. 2022, arXiv:2205.14135 (recomputation)
void attention_forward(Stream&, const Tensor& y, const Tensor& lse, const AttentionInput& x, const AttentionOptions&);

/// With dp_ij = m_ij sum_c dy_ic v_jc (m = 1 without dropout) and ds_ij = p_ij (dp_ij - sum_c dy_ic y_ic):
///
///   dq_ic = scale sum_j ds_ij k_jc,   dk_jc = scale sum_i ds_ij q_ic,   dv_jc = sum_i m_ij p_ij dy_ic
///
/// Each is stored, or added when its target accumulates; an empty target is not written.
void attention_backward(Stream&, const AttentionTarget& dx, const Tensor& dy, const Tensor& y, const Tensor& lse,
                        const AttentionInput& x, const AttentionOptions&);

}  // namespace lockstep::ops
