#pragma once
#include <cstdint>
#include <limits>

#include "attention_kernels.hpp"

namespace lockstep::ops::cuda {

/// All heads of sequences of halves, for kernels that multiply on tensor cores: those of attention (attention.hpp), and, with
/// the rest, those of causal attention without times (causal_attention.hpp). `time` is the longest sequence's.
template <class T>
struct HalfAttention : Attention<T> {
  const std::int64_t* offsets = nullptr;  ///< (batch + 1) first rows of the sequences; null: all are of length `time`
  const std::int64_t* first_query = nullptr;  ///< (batch), or null
  /// Keys after a query have the score `fill`. lse is then (rows, heads), and each head has a site of its own for dropout.
  bool causal = false;
  float fill = -std::numeric_limits<float>::infinity();
};

/// shapes  heads of at most kMostHeadColumns columns
template <class T>
void half_attention_forward(const Stream& stream, const HalfAttention<T>& a);
/// rows: of all sequences.
template <class T>
void half_attention_backward(const Stream& stream, const HalfAttention<T>& a, std::int64_t rows);

}  // namespace lockstep::ops::cuda
