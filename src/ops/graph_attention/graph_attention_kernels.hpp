#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/graph_attention.hpp"

namespace lockstep::ops::cpu {

template <class T>
struct GraphAttentionKernels {
  /// logits[place[i]] = heads[head_slot[i]] . tails[tail_slot[i]] for i < n, rows of k elements.
  void (*pair_dots)(std::int64_t n, std::int64_t k, T* logits, const std::int64_t* place, const T* heads,
                    const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot);
  /// The softmax of a row of at least one entry; entry e has triples edge_ptr[e] .. edge_ptr[e + 1] - 1. per_triple:
  /// over the triples, else over the entries.
  void (*softmax_row)(std::int64_t entries, const std::int64_t* edge_ptr, const T* logits, T* values, bool per_triple);
};

LOCKSTEP_KERNELS(GraphAttentionKernels, graph_attention_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// x = tanh(x + y) for rows of k elements.
template <class T>
void shift_tanh(const Stream& stream, std::int64_t rows, std::int64_t k, T* x, const T* y);

/// logits[place[i]] = heads[head_slot[i]] . tails[tail_slot[i]], rows of k elements.
template <class T>
void pair_dots(const Stream& stream, std::int64_t k, real_t<T>* logits, const T* heads, const T* tails,
               const RelationTriples& triples);

template <class T>
void attention_softmax(const Stream& stream, ParallelEdges parallel, const std::int64_t* row_ptr,
                       const std::int64_t* edge_ptr, std::int64_t first, std::int64_t last, const T* logits, T* values);

}  // namespace lockstep::ops::cuda
