#pragma once
#include <cstdint>
#include <limits>

#include "ops/attention/attention_kernels.hpp"

namespace lockstep::ops::cuda {

/// Arguments of the kernels of attention without times: all heads of attention (attention.hpp) and, with the additional
/// members, of causal attention (causal_attention.hpp). `time` is the length of the longest sequence.
template <class T>
struct PackedAttention : Attention<T> {
  std::int64_t kv_stride = this->stride;      ///< between rows of k and v; `stride` is that of q
  const std::int64_t* offsets = nullptr;      ///< (batch + 1) first rows of the sequences; null: all have length `time`
  const std::int64_t* first_query = nullptr;  ///< (batch), or null
  /// Keys after a query have the score `fill`. lse is then (rows, heads), and each head has its own dropout site.
  bool causal = false;
  real_t<T> fill = -std::numeric_limits<real_t<T>>::infinity();
  std::int64_t all_rows = 0;  ///< of the arrays, if those after the sequences get zeros; else 0
  double product_flops = 0;   ///< of all queries with the keys that they see, for the ledger
};

/// Heads have at most kMostHeadColumns columns. Halves are multiplied on tensor cores (half_attention_cuda.cu), float
/// and double by ordinary multiply-adds (real_attention_cuda.cu).
template <class T>
void packed_attention_forward(const Stream& stream, const PackedAttention<T>& a);
/// rows: the number of rows of all sequences.
template <class T>
void packed_attention_backward(const Stream& stream, const PackedAttention<T>& a, std::int64_t rows);

}  // namespace lockstep::ops::cuda
