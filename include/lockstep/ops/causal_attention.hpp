#pragma once
#include <limits>
#include <span>

#include "lockstep/base/named.hpp"
#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Which keys a query sees, and what is dropped, in causal attention over packed sequences.
struct CausalAttention {
  SampleRows rows;  ///< each sample is one sequence, oldest row first
  std::int64_t heads = 1;
  Dropout dropout;  ///< of the probabilities
  /// (B): rows of a sample before first_query are keys only, and their result is 0. Empty: all rows are queries.
  std::span<const std::int64_t> first_query;
  /// The score of keys that come after their query. Minus infinity excludes these keys. With a finite value they take
  /// part in the softmax (some public code uses -1000).
  double fill = -std::numeric_limits<double>::infinity();
  /// Pairs of a row with itself and the earlier rows of its sample, for the ledger; 0: computed from rows.offsets,
  /// which must then be readable by the host.
  std::int64_t pairs = 0;
};

/// Learned vectors that are added to keys and values, chosen by the time between query and key, in buckets.
struct TimeBuckets {
  enum class Drop {
    element,  ///< a separate mask for each (sample, head, query, key, channel); rate rounded to a multiple of 1/256
    table,    ///< one mask for each (sample, bucket, channel), drawn as in ops/dropout.hpp
  };
  Tensor keys, values;                  ///< (R, C): bucket r = min(time_i - time_j, R - 1)
  std::span<const std::int64_t> times;  ///< (N), non-descending within a sample
  Drop drop = Drop::element;
  Dropout dropout = {};
  /// On a GPU: the result of prepare_times() for all of the above. Empty: each call prepares its own tables.
  Tensor prepared = {};
  explicit operator bool() const { return static_cast<bool>(keys); }
};
constexpr auto names_of(TimeBuckets::Drop) { return std::array{"element", "table"}; }

/// Scaled dot-product attention of each row of a sequence to itself and the rows before it, optionally aware of the
/// time between them.
///
///   s_ij = q_i (k_j + TK_r(ij)) / sqrt(E),   p_i = softmax over j <= i,   y_i = sum_j drop(p_ij) (v_j + TV_r(ij))
///
/// per head of E = C / heads channels, with r(ij) = min(time_i - time_j, R - 1). Without `time` the terms TK and TV are
/// left out. Each head of each sequence is a few small products in cache. The backward recomputes the (T, T)
/// probabilities from the logarithms of their sums, and no array of size (T, T, C) is formed. Row i depends on rows up
/// to i of its own sequence alone, in every bit (unless `fill` is finite).
///
/// shapes   y (N, C), N = rows.rows(), C a multiple of heads, y 0 in rows after the samples; q (N, C) with k and v
///          side by side as kv (N, 2 C), or all three as q (N, 3 C) with kv empty; logsum (N, heads), for the backward,
///          or empty
/// dtypes   f32 | f64, on a GPU also bf16 | f16, all equal. logsum and the tables' gradients are f32 for halves.
///          Without times, p and its gradient are rounded to halves before they are multiplied
/// errors   Error naming the shapes if they do not fit, if times descend within a sequence (not checked in GPU memory),
///          if both `time` and a finite fill are set, or on a GPU if heads are wider than 128 channels
/// source   Kang, McAuley 2018, arXiv:1808.09781, section III-B; Li, Wang, McAuley 2020 (TiSASRec), eq. 5-9
void causal_attention_forward(Stream&, const Tensor& y, const Tensor& logsum, const Tensor& q, const Tensor& kv,
                              const CausalAttention& attention, const TimeBuckets& time = {});

/// Writes the tables, with their masks, in the layout of the GPU's kernels, so that several calls can share them.
///
/// shapes   prepared (prepared_times_size())
/// dtypes   prepared: real_dtype() of the tables
/// errors   Error if the size does not fit or the tables are not on a GPU
void prepare_times(Stream&, const Tensor& prepared, const CausalAttention& attention, const TimeBuckets& time);
/// Elements of the array that prepare_times() writes; 0 in a build without CUDA.
std::int64_t prepared_times_size(const CausalAttention& attention, const TimeBuckets& time);

/// The gradients of causal_attention_forward. y is the result of the forward. Probabilities are recomputed from logsum
/// and masks are drawn again. Targets have the shapes of q, kv, time.keys and time.values, and are empty where these
/// are. Sums over sequences run in ascending order; on a GPU they are sums of partial sums, one per block, over tiles
/// of queries that depend on the shapes alone.
void causal_attention_backward(Stream&, Target dq, Target dkv, Target dkeys, Target dvalues, const Tensor& dy,
                               const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& logsum,
                               const CausalAttention& attention, const TimeBuckets& time = {});

}  // namespace lockstep::ops
