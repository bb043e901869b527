#pragma once
#include <cstdint>

#include "lockstep/ops/causal_attention.hpp"
#include "lockstep/ops/dispatch.hpp"
#include "ops/dropout/dropout_kernels.hpp"

namespace lockstep::ops {

/// The first elements of q, k and v, or of their gradients, and the distances between rows.
template <class T>
struct CausalRows {
  T *q, *k, *v;
  std::int64_t stride, kv_stride;
};

}  // namespace lockstep::ops

namespace lockstep::ops::cpu {

/// The time-aware terms of one head of one sequence. Tables have rows of time_width() elements, zero beyond the head's
/// width, and include the factor of dropout.
template <class T>
struct TimeHead {
  const T* keys = nullptr;  ///< null: no time terms
  const T* values = nullptr;
  T* dkeys = nullptr;  ///< laid out as the tables; null in the forward pass
  T* dvalues = nullptr;
  const std::int64_t* times = nullptr;
  std::int64_t last = 0;       ///< the bucket of long times
  std::int32_t threshold = 0;  ///< an element is dropped if its 8-bit draw is below this; 0: no dropout
  PhiloxKey draws;
};

/// One head of one sequence: pointers to its first channel in its first row.
template <class T>
struct CausalHead {
  std::int64_t length, width;
  std::int64_t stride, kv_stride, y_stride;  ///< between rows of q, of k and v, of y, and of their gradients
  std::int64_t first_query;                  ///< rows before it are keys only
  const T *q, *k, *v;
  T* y;
  T* logsum;  ///< may be null in the forward
  std::int64_t logsum_stride;
  const T* dy;
  T *dq, *dk, *dv;  ///< added to
  bool filled;      ///< keys after the query have the score `fill`
  T fill;
  bool drop;
  DropRate rate{0};
  PhiloxKey draws;
  TimeHead<T> time;
};

/// How the copy of a time table (rows, heads * width) in the layout of TimeHead differs from the table.
struct TimeLayout {
  std::int64_t rows, heads, width;
  const std::uint64_t* kept = nullptr;  ///< bit i: whether element i of the table is kept; null: all are
  const std::uint8_t* used = nullptr;   ///< not 0: the row is used; others are neither read nor written. Null: all are
  double scale = 1;                     ///< factor of the kept elements
};

template <class T>
struct CausalAttentionKernels {
  /// Elements of a row of the time tables for a head of this width.
  std::int64_t (*time_width)(std::int64_t width);
  /// Bit i is set if element i of n passes dropout, drawn as in ops/dropout.hpp. Writes whole groups of 128 bits.
  void (*draw_kept)(std::int64_t n, std::uint64_t* kept, const PhiloxKey& key, const DropRate& rate);
  /// Writes the table in the layout of the kernels to `heads`, and zeros to `gradients` (same layout) unless it is
  /// null. May read 64 bits after the last group of `kept`.
  void (*split_table)(const TimeLayout& layout, T* heads, T* gradients, const T* table);
  /// table += the gradient of `heads`.
  void (*add_to_table)(const TimeLayout& layout, T* table, const T* heads);
  void (*forward)(const CausalHead<T>& head);
  void (*backward)(const CausalHead<T>& head);
};

LOCKSTEP_KERNELS(CausalAttentionKernels, causal_attention_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// The passes of ops/causal_attention.hpp. Pointers may be null where the tensors may be empty.
template <class T>
void causal_attention_forward(const Stream& stream, T* y, real_t<T>* logsum, const CausalRows<const T>& x,
                              std::int64_t columns, const CausalAttention& attention, const TimeBuckets& time);
/// Elements of the prepared tables, and the kernel that writes them.
std::int64_t prepared_times_size(std::int64_t columns, const CausalAttention& attention, const TimeBuckets& time);
template <class T>
void prepare_times(const Stream& stream, real_t<T>* prepared, std::int64_t columns, const CausalAttention& attention,
                   const TimeBuckets& time);
/// y is the result of the forward: the gradient of the softmax needs the sum of y dy over a row. add: whether dq, dk
/// and dv are added.
template <class T>
void causal_attention_backward(const Stream& stream, const CausalRows<T>& dx, bool add_dq, bool add_dkv,
                               real_t<T>* dkeys, real_t<T>* dvalues, const T* dy, const T* y,
                               const CausalRows<const T>& x, const real_t<T>* logsum, std::int64_t columns,
                               const CausalAttention& attention, const TimeBuckets& time);

}  // namespace lockstep::ops::cuda
