#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/bpr.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Some samples of a batch that are of one relation.
struct RelationChunk {
  std::int32_t relation = 0;
  std::int64_t first = 0, count = 0;
};

/// Samples (h, r, t, t'): a triple of the graph and a tail that makes it none. Those of a chunk lie side by side. The
/// memory is the caller's, where the kernels can read it.
struct RelationSamples {
  std::span<const RelationChunk> chunks;
  std::span<const std::int32_t> head, tail, other;  ///< rows of the table
};

/// What a call leaves, all stored; a tensor that nobody wants is empty. Rows 3 first .. 3 (first + count) - 1 of the (3M)
/// ones belong to a chunk: its heads, its tails, its other tails.
struct TransrResult {
  Tensor projected;   ///< (3M, k)
  Tensor score;       ///< (2M): from 2 first on a chunk's f(t), then its f(t')
  Tensor drows;       ///< (3M, d): gradient of the table's rows
  Tensor drelations;  ///< (chunks, d k + k): gradient of the matrix, then of the translation; wanted with drows
};

/// TransR ranking of triples, P(e) = e M_r:
///
///   f(t) = |P(h) + y_r - P(t)|^2,   sum over samples of softplus(f(t) - f(t')) and of the regulariser's half squares,
///   |P(h)|^2 + |y_r|^2 + |P(t)|^2 + |P(t')|^2
///
/// and the gradient of (ranking + l2 half squares) / total. Chunks are shared among OpenMP's threads; what depends on the
/// samples of a chunk is summed in their order. sums (chunks) are stored; for a GPU they lie in pinned memory, and are
/// there when the stream has come past.
///
/// shapes   table (N, d); matrices (R, d, k); translations (R, k)
/// dtypes   f32 | f64, all equal; sums over k and over samples in f64
/// source   Lin et al. 2015, "Learning Entity and Relation Embeddings for Knowledge Graph Completion"; Wang et al. 2019,
///          arXiv:1905.07854, eq. 1-2
void transr(Stream&, const RelationSamples& samples, const Tensor& table, const Tensor& matrices,
            const Tensor& translations, double l2, std::int64_t total, const TransrResult& result,
            std::span<RankingSums> sums);

}  // namespace lockstep::ops
