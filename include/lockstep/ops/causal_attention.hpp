#pragma once
#include <limits>
#include <span>

#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Which keys a query sees, and what is dropped, in causal attention over packed sequences.
struct CausalAttention {
  SampleRows rows;  ///< each sample a sequence, its oldest row first
  std::int64_t heads = 1;
  Dropout dropout;  ///< of the probabilities
  /// (B): rows of a sample before this one are keys only; their result is 0. Empty: none are.
  std::span<const std::int64_t> first_query;
  /// The score of a key after its query. Minus infinity leaves such keys out; a finite one lets them in with the
  /// probability that it amounts to (public code fills with -1000).
  double fill = -std::numeric_limits<double>::infinity();
};

/// Vectors that are added to keys and values according to the time between query and key, in buckets.
struct TimeBuckets {
  enum class Drop {
    element,  ///< a mask of its own for each (sample, head, query, key, channel), rate rounded to a multiple of 1/256
    table,    ///< a mask for each (sample, bucket, channel), as ops/dropout.hpp draws it
  };
  Tensor keys, values;                  ///< (R, C): bucket r = min(time_i - time_j, R - 1)
  std::span<const std::int64_t> times;  ///< (N), not descending within a sample
  Drop drop = Drop::element;
  Dropout dropout = {};
  explicit operator bool() const { return static_cast<bool>(keys); }
};

/// Scaled dot-product attention of each row of a sequence to itself and the rows before it, and optionally aware of the
/// time between them.
///
///   s_ij = q_i (k_j + TK_r(ij)) / sqrt(E),   p_i = softmax over j <= i,   y_i = sum_j drop(p_ij) (v_j + TV_r(ij))
///
/// per head of E = C / heads channels; r(ij) = min(time_i - time_j, R - 1), and the terms in TK and TV are left out
/// when `time` is empty. Each head of each sequence is a few small products in the cache: neither the (T, T)
/// probabilities are kept for the backward, only their logarithmic sums, nor is anything of (T, T, C) ever formed. Row i
/// depends on the rows up to i of its own sequence alone, in every bit (unless there is a fill).
///
/// shapes   q, k, v, y (N, C), N = rows.rows(), C a multiple of heads; logsum (N, heads), kept for the backward, or
///          empty
/// dtypes   f32 | f64, on a GPU also bf16 | f16, all equal; logsum and gradients of tables real, f32 for the halves; without
///          times p and its gradient are rounded to halves before they multiply
/// errors   Error naming the shapes if they do not fit, if times descend within a sequence, or if heads are wider than 128
///          channels on a GPU
/// source   Kang, McAuley 2018, arXiv:1808.09781, section III-B; Li, Wang, McAuley 2020 (TiSASRec), eq. 5-9
void causal_attention_forward(Stream&, const Tensor& y, const Tensor& logsum, const Tensor& q, const Tensor& k,
                              const Tensor& v, const CausalAttention& attention, const TimeBuckets& time = {});

/// Probabilities are computed again from logsum, masks drawn again. Any target may be empty. dkeys, dvalues (R, C) are
/// those of time.keys and time.values. y is the forward's. Sums over sequences run in their order; on a GPU blocks have
/// partial sums, of which sequences is a matter of the shapes alone.
void causal_attention_backward(Stream&, Target dq, Target dk, Target dv, Target dkeys, Target dvalues, const Tensor& dy,
                               const Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& logsum,
                               const CausalAttention& attention, const TimeBuckets& time = {});

}  // namespace lockstep::ops
