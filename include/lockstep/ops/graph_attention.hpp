#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The triples of one relation with their distinct heads and tails: triple i goes from heads[head_slot[i]] to
/// tails[tail_slot[i]], and its logit is element place[i]. The memory is the caller's, where the kernels can read it.
struct RelationTriples {
  std::span<const std::int32_t> heads, tails;          ///< rows of the table
  std::span<const std::int32_t> head_slot, tail_slot;  ///< (n)
  std::span<const std::int64_t> place;                 ///< (n)
};

/// v = P(t) . tanh(P(h) + y) for each triple, P(e) = e M: each distinct node is projected once. Shared among OpenMP's
/// threads.
///
/// shapes   table (N, d); matrix (d, k); translation (k); logits (all triples)
/// dtypes   f32 | f64, on a GPU also bf16 | f16, all equal; logits real, f32 for the halves
/// source   Wang et al. 2019, arXiv:1905.07854, eq. 4
void attention_logits(Stream&, Arena& scratch, const RelationTriples& triples, const Tensor& table,
                      const Tensor& matrix, const Tensor& translation, const Tensor& logits);

/// What parallel edges (several relations between the same two nodes) mean for the softmax.
enum class ParallelEdges : std::uint8_t {
  per_triple,  ///< softmax over the triples of a head; an entry is the sum of its triples' shares
  sum_logits,  ///< an entry's logit is the sum of its triples' logits; softmax over the entries
};

/// The attention of each head over its neighbours: rows sum to 1, empty rows stay empty.
///
/// The offsets lie where the kernels can read them.
///
/// shapes   logits (triples), by head; row_ptr (rows + 1) entries of each row; edge_ptr (entries + 1) triples of each
///          entry; values (entries), stored for rows [first, last)
/// dtypes   f32 | f64, equal
/// source   Wang et al. 2019, arXiv:1905.07854, eq. 5 (per_triple)
void attention_softmax(Stream&, ParallelEdges parallel, std::span<const std::int64_t> row_ptr,
                       std::span<const std::int64_t> edge_ptr, std::int64_t first, std::int64_t last,
                       const Tensor& logits, const Tensor& values);

}  // namespace lockstep::ops
