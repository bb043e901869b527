#pragma once
#include "lockstep/base/real.hpp"
#include "lockstep/ops/graph_attention.hpp"

namespace lockstep::ops::cuda {

/// x = tanh(x + y) for rows of k.
template <class T>
void shift_tanh(const Stream& stream, std::int64_t rows, std::int64_t k, T* x, const T* y);

/// logits[place[i]] = heads[head_slot[i]] . tails[tail_slot[i]], rows of k.
template <class T>
void pair_dots(const Stream& stream, std::int64_t k, real_t<T>* logits, const T* heads, const T* tails,
               const RelationTriples& triples);

template <class T>
void attention_softmax(const Stream& stream, ParallelEdges parallel, const std::int64_t* row_ptr,
                       const std::int64_t* edge_ptr, std::int64_t first, std::int64_t last, const T* logits, T* values);

}  // namespace lockstep::ops::cuda
