#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/bpr.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Consecutive samples of a batch that have the same relation.
struct RelationChunk {
  std::int32_t relation = 0;
  std::int64_t first = 0, count = 0;
};

/// Samples (h, r, t, t'): a triple of the graph and a corrupted tail t'. The samples of a chunk are consecutive. The
/// caller owns the memory, which the kernels must be able to read.
struct RelationSamples {
  std::span<const RelationChunk> chunks;
  std::span<const std::int32_t> head, tail, other;  ///< rows of the table
};

/// The outputs of a call. All are stored; empty tensors are not computed. Of the 3M rows, rows 3 first .. 3 (first +
/// count) - 1 belong to a chunk: its heads, its tails, its corrupted tails.
struct TransrResult {
  Tensor projected;   ///< (3M, k)
  Tensor score;       ///< (2M): from element 2 first on, f(t) of a chunk, then f(t')
  Tensor drows;       ///< (3M, d): gradient of the table's rows
  Tensor drelations;  ///< (chunks, d k + k): gradient of the matrix, then of the translation; empty if drows is
};

/// TransR ranking loss of triples, P(e) = e M_r:
///
///   f(t) = |P(h) + y_r - P(t)|^2,   sum over samples of softplus(f(t) - f(t')) and of the regulariser's half squares,
///   |P(h)|^2 + |y_r|^2 + |P(t)|^2 + |P(t')|^2
///
/// and the gradient of (ranking + l2 half squares) / total. The OpenMP threads share the chunks; sums over the samples
/// of a chunk run in their order. `sums` (chunks) are stored. A GPU stores them in its memory or in pinned host memory,
/// valid once the stream has finished this call; there a chunk without samples is padding.
///
/// shapes   table (N, d); matrices (R, d, k); translations (R, k)
/// dtypes   f32 | f64, all equal; sums over k and over samples in f64
/// errors   Error naming the shapes if they do not fit
/// source   Lin et al. 2015, "Learning Entity and Relation Embeddings for Knowledge Graph Completion"; Wang et al.
///          2019, arXiv:1905.07854, eq. 1-2
void transr(Stream&, const RelationSamples& samples, const Tensor& table, const Tensor& matrices,
            const Tensor& translations, double l2, std::int64_t total, const TransrResult& result,
            std::span<RankingSums> sums);

}  // namespace lockstep::ops
