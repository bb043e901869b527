#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/bpr.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Some samples (h, r, t, t') of one relation r: a triple of the graph and a tail that makes it none.
struct RelationSamples {
  std::span<const std::int32_t> head, tail, other;  ///< (n) rows of the table
  std::int64_t count() const { return static_cast<std::int64_t>(head.size()); }
};

/// What a call leaves, all stored. Rows 0 .. n-1 of the (3n) ones belong to heads, then tails, then other tails.
struct TransrResult {
  Tensor projected;     ///< (3n, k)
  Tensor score;         ///< (2, n): f(t), then f(t')
  Tensor drows;         ///< (3n, d): gradient of the table's rows; empty when no gradient is wanted
  Tensor dmatrix;       ///< (d, k)
  Tensor dtranslation;  ///< (k)
};

/// TransR ranking of triples, P(e) = e M:
///
///   f(t) = |P(h) + y - P(t)|^2,   sum over samples of softplus(f(t) - f(t')) and of the regulariser's half squares,
///   |P(h)|^2 + |y|^2 + |P(t)|^2 + |P(t')|^2
///
/// and the gradient of (ranking + l2 half squares) / total. Runs on the calling thread inside a parallel region.
///
/// shapes   table (N, d); matrix (d, k); translation (k)
/// dtypes   f32 | f64, all equal; sums over k and over samples in f64
/// source   Lin et al. 2015, "Learning Entity and Relation Embeddings for Knowledge Graph Completion"; Wang et al. 2019,
///          arXiv:1905.07854, eq. 1-2
RankingSums transr(Stream&, Arena& scratch, const RelationSamples& samples, const Tensor& table, const Tensor& matrix,
                   const Tensor& translation, double l2, std::int64_t total, const TransrResult& result);

}  // namespace lockstep::ops
