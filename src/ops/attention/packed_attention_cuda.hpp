#pragma once
#include <cstdint>
#include <limits>

#include "ops/attention/attention_kernels.hpp"

namespace lockstep::ops::cuda {

/// Arguments of the kernels of attention without times: all heads of all sequences of attention (attention.hpp) and,
/// with the members from kv_stride on, of causal attention (causal_attention.hpp). `time` is the length of the longest
/// sequence. Rows of q, k, v and their gradients are `stride` elements apart, those of y and dy heads * width.
template <class T>
struct PackedAttention {
  std::int64_t batch = 0, time = 0, heads = 1, width = 0;
  real_t<T> scale = 1;
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t stride = 0;
  T* y = nullptr;
  real_t<T>* lse = nullptr;  ///< (batch, heads, time), or null
  const T* dy = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;
  bool add_dq = false, add_dkv = false;
  Dropout dropout = {};
  const std::uint64_t* samples = nullptr;  ///< (batch)
  WeightDraws draws = {};
  /// (time, width / 2): q and k are rotated when they are loaded; or null.
  const real_t<T>*cos = nullptr, *sin = nullptr;
  std::int64_t kv_stride = stride;            ///< between rows of k and v; `stride` is that of q
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
