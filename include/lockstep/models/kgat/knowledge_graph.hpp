#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// The collaborative knowledge graph (CKG): directed triples (head, relation, tail), each relation with its inverse,
/// and the pattern of distinct (head, tail) pairs over them as a sparse matrix. The caller owns the memory.
struct KgGraph {
  std::int64_t nodes = 0, relations = 0;
  /// Triples sorted by (head, tail, relation); indptr[h] .. indptr[h + 1] are the triples of head h.
  std::span<const std::int64_t> indptr;     ///< (nodes + 1)
  std::span<const std::int32_t> tail, rel;  ///< (triples)
  /// Triples by relation, ascending within each, thus by head.
  std::span<const std::int64_t> rel_indptr;  ///< (relations + 1)
  std::span<const std::int64_t> rel_perm;    ///< (triples)
  /// The pattern in CSR form. Entry e stands for the triples edge_ptr[e] .. edge_ptr[e + 1] (parallel edges). The
  /// pattern is symmetric because each relation has its inverse; transpose[e] is the entry of the reversed pair.
  std::span<const std::int64_t> adj_indptr;  ///< (nodes + 1)
  std::span<const std::int32_t> col;         ///< (nnz)
  std::span<const std::int64_t> edge_ptr;    ///< (nnz + 1)
  std::span<const std::int64_t> transpose;   ///< (nnz)

  std::int64_t triples() const { return std::ssize(tail); }
  std::int64_t nnz() const { return std::ssize(col); }
  std::int64_t degree(std::int64_t node) const {
    const auto n = static_cast<std::size_t>(node);
    return adj_indptr[n + 1] - adj_indptr[n];
  }
  /// Whether (head, relation, tail) is a triple.
  bool has(std::int64_t head, std::int64_t relation, std::int64_t tail) const;
  /// has() for many triples in one search: found_i = has(head_i, relation_i, tail_i). shapes  all of the same length
  void find(std::span<const std::int32_t> head, std::span<const std::int32_t> relation,
            std::span<const std::int32_t> tail, std::span<bool> found) const;
};

/// Weight of an edge before any attention: A = sum over relations of L(A_r), where d_r(x) is the number of triples of
/// relation r with head x, and r' is the inverse of r.
///
///   random_walk         sum over r of 1 / d_r(h)
///   symmetric           sum over r of 1 / sqrt(d_r(h) d_r'(t))
///   symmetric_upstream  sum over r of 1 / sqrt(d_r(h) d_r(t)), 0 where d_r(t) = 0: interactions have weight 0
enum class Laplacian : std::uint8_t { random_walk, symmetric, symmetric_upstream };

/// Computes one value per pattern entry.
///
/// shapes   values (nnz)
/// dtypes   f32 | f64; computed in f64
/// source   Wang, He, Cao, Liu, Chua 2019, arXiv:1905.07854, and the authors' programs
void laplacian(const KgGraph& graph, Laplacian kind, const Tensor& values);

}  // namespace lockstep
