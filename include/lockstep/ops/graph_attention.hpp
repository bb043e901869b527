#pragma once
#include <cstdint>
#include <span>

#include "lockstep/base/named.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The triples of one relation with their distinct heads and tails: triple i goes from heads[head_slot[i]] to
/// tails[tail_slot[i]], and its logit is written to index place[i]. The caller owns the memory, which the kernels must
/// be able to read.
struct RelationTriples {
  std::span<const std::int32_t> heads, tails;          ///< rows of the table
  std::span<const std::int32_t> head_slot, tail_slot;  ///< (n)
  std::span<const std::int64_t> place;                 ///< (n)
};

/// The attention logit of each triple: v = P(t) . tanh(P(h) + y), P(e) = e M. Each distinct node is projected once. The
/// OpenMP threads share the work.
///
/// shapes   table (N, d); matrix (d, k); translation (k); logits (all triples)
/// dtypes   table, matrix and translation f32 | f64, on a GPU also bf16 | f16, all equal; logits the same, f32 for
///          halves
/// errors   Error naming the shapes if they do not fit
/// source   Wang et al. 2019, arXiv:1905.07854, eq. 4
void attention_logits(Stream&, Arena& scratch, const RelationTriples& triples, const Tensor& table,
                      const Tensor& matrix, const Tensor& translation, const Tensor& logits);

/// How the softmax treats parallel edges (several relations between the same two nodes).
enum class ParallelEdges : std::uint8_t {
  per_triple,  ///< softmax over the triples of a head; an entry is the sum of its triples' shares
  sum_logits,  ///< an entry's logit is the sum of its triples' logits; softmax over the entries
};
constexpr auto names_of(ParallelEdges) { return std::array{"per_triple", "sum_logits"}; }

/// The attention of each head over its neighbours: the values of a row sum to 1, empty rows stay empty. The kernels
/// must be able to read the offsets.
///
/// shapes   logits (triples), by head; row_ptr (rows + 1) entries of each row; edge_ptr (entries + 1) triples of each
///          entry; values (entries), stored for rows [first, last)
/// dtypes   f32 | f64, equal
/// errors   Error naming the sizes if they do not fit
/// source   Wang et al. 2019, arXiv:1905.07854, eq. 5 (per_triple)
void attention_softmax(Stream&, ParallelEdges parallel, std::span<const std::int64_t> row_ptr,
                       std::span<const std::int64_t> edge_ptr, std::int64_t first, std::int64_t last,
                       const Tensor& logits, const Tensor& values);

}  // namespace lockstep::ops
