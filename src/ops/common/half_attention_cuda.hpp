#pragma once
#include <cstdint>
#include <limits>

#include "ops/attention/attention_kernels.hpp"

namespace lockstep::ops::cuda {

/// Arguments of the kernels that multiply halves on tensor cores: all heads of attention (attention.hpp) and, with the
/// additional members, of causal attention without times (causal_attention.hpp). `time` is the length of the longest
/// sequence.
template <class T>
struct HalfAttention : Attention<T> {
  std::int64_t kv_stride = this->stride;      ///< between rows of k and v; `stride` is that of q
  const std::int64_t* offsets = nullptr;      ///< (batch + 1) first rows of the sequences; null: all have length `time`
  const std::int64_t* first_query = nullptr;  ///< (batch), or null
  /// Keys after a query have the score `fill`. lse is then (rows, heads), and each head has its own dropout site.
  bool causal = false;
  float fill = -std::numeric_limits<float>::infinity();
};

/// Heads have at most kMostHeadColumns columns.
template <class T>
void half_attention_forward(const Stream& stream, const HalfAttention<T>& a);
/// rows: the number of rows of all sequences.
template <class T>
void half_attention_backward(const Stream& stream, const HalfAttention<T>& a, std::int64_t rows);

}  // namespace lockstep::ops::cuda
