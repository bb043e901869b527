#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Options of an attention call.
struct AttentionOptions {
  std::int64_t heads = 1;
  double scale = 1;                             ///< factor of q k^T before the softmax, usually 1/sqrt(D)
  Dropout dropout = {};                         ///< of the weights p; ops/dropout.hpp defines the draws
  std::span<const std::uint64_t> samples = {};  ///< (B) global sample numbers that key the draws; must outlive the tape
  /// Tables (T, D/2) that rotate queries and keys by their position before the scores (rope.hpp); empty: no rotation.
  /// With a rotation the gradient must be stored. A GPU rotates rows as it loads them; the CPU rotates qkv in place.
  Tensor cos = {}, sin = {};
};

/// Softmax attention of every position to every position, without a mask, for all heads.
///
///   s_ij = scale sum_c q_ic k_jc,   p_ij = exp(s_ij - lse_i),   lse_i = log sum_j exp s_ij,   y_ic = sum_j p_ij v_jc
///
/// With dropout y_ic = sum_j m_ij p_ij v_jc, m_ij = keep_ij / (1 - rate). The full (T, T) matrix p is never stored; the
/// backward recomputes p from lse. A sequence's result depends on that sequence alone, in every bit. Called outside a
/// parallel region, the op shares sequences and heads among the OpenMP threads.
///
/// shapes   qkv (B, T, 3 A): queries, keys and values side by side; y (B, T, A). Head h has columns h D .. h D + D - 1
///          of each, D = A / heads. lse (B, heads, T), or empty when no backward follows. T and D are free
/// dtypes   f32 | f64, all equal. On a GPU also bf16 | f16 with lse and the rotation's tables in f32; p and ds are then
///          rounded to that type before they are multiplied
/// errors   Error naming the shapes if they do not fit, if heads does not divide A, or on a GPU if D is above 128
/// source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Dao et al. 2022, arXiv:2205.14135 (recomputation)
void attention_forward(Stream&, const Tensor& y, const Tensor& lse, const Tensor& qkv, const AttentionOptions&);

/// The gradients of q, k and v. With dp_ij = m_ij sum_c dy_ic v_jc (m = 1 without dropout) and ds_ij = p_ij (dp_ij -
/// sum_c dy_ic y_ic):
///
///   dq_ic = scale sum_j ds_ij k_jc,   dk_jc = scale sum_i ds_ij q_ic,   dv_jc = sum_i m_ij p_ij dy_ic
///
/// They lie side by side in dqkv, which may be empty. qkv must be as the forward left it.
void attention_backward(Stream&, Target dqkv, const Tensor& dy, const Tensor& y, const Tensor& lse, const Tensor& qkv,
                        const AttentionOptions&);

}  // namespace lockstep::ops
