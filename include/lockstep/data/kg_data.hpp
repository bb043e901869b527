#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/data/placement.hpp"
#include "lockstep/data/split.hpp"

namespace lockstep {

/// Distinct items of each user, ascending.
struct UserItems {
  std::span<const std::int64_t> indptr;  ///< (users + 1), or empty: nothing at all
  std::span<const std::int32_t> item;
  std::int64_t count() const { return static_cast<std::int64_t>(item.size()); }
  std::span<const std::int32_t> of(std::int64_t user) const {
    if (indptr.empty()) return {};
    const auto u = static_cast<std::size_t>(user);
    return item.subspan(static_cast<std::size_t>(indptr[u]), static_cast<std::size_t>(indptr[u + 1] - indptr[u]));
  }
  /// Whether the user has the item; a binary search.
  bool has(std::int64_t user, std::int64_t item) const;
};

/// The collaborative knowledge graph (CKG): directed triples (head, relation, tail), each relation with its inverse, and
/// the pattern of distinct (head, tail) pairs over them as a sparse matrix. Memory is somebody else's.
struct KgGraph {
  std::int64_t nodes = 0, relations = 0;
  /// Triples sorted by (head, tail, relation): those of head h are indptr[h] .. indptr[h + 1].
  std::span<const std::int64_t> indptr;     ///< (nodes + 1)
  std::span<const std::int32_t> tail, rel;  ///< (triples)
  /// Triples by relation, ascending within each, thus by head.
  std::span<const std::int64_t> rel_indptr;  ///< (relations + 1)
  std::span<const std::int64_t> rel_perm;    ///< (triples)
  /// The pattern in CSR form. Entry e stands for the triples edge_ptr[e] .. edge_ptr[e + 1] (parallel edges). It is
  /// symmetric, because each relation has its inverse: entry transpose[e] is the one the other way round.
  std::span<const std::int64_t> adj_indptr;  ///< (nodes + 1)
  std::span<const std::int32_t> col;         ///< (nnz)
  std::span<const std::int64_t> edge_ptr;    ///< (nnz + 1)
  std::span<const std::int64_t> transpose;   ///< (nnz)

  std::int64_t triples() const { return static_cast<std::int64_t>(tail.size()); }
  std::int64_t nnz() const { return static_cast<std::int64_t>(col.size()); }
  std::int64_t degree(std::int64_t node) const {
    const auto n = static_cast<std::size_t>(node);
    return adj_indptr[n + 1] - adj_indptr[n];
  }
  /// Whether (head, relation, tail) is a triple.
  bool has(std::int64_t head, std::int64_t relation, std::int64_t tail) const;
};

/// A prepared knowledge-graph data set (lockstep-kgat) in memory, one copy per placement. Items are the entities
/// 0 .. items-1; user u is node entities + u.
struct KgData {
  std::filesystem::path path;
  std::int64_t users = 0, items = 0, entities = 0;
  UserItems train, valid, test;  ///< valid is empty unless it was carved out of train
  KgGraph graph;
  std::uint64_t hash = 0;  ///< XXH3 over interactions and triples

  std::int64_t nodes() const { return entities + users; }
  std::int64_t node_of_user(std::int64_t user) const { return entities + user; }
  const UserItems& of(Split split) const {
    return split == Split::train ? train : split == Split::validation ? valid : test;
  }

  /// Reads a file that lockstep-prep wrote; what the program later indexes with is checked.
  /// errors  data, naming file and dataset: another format or version, an attribute or dataset missing or of another
  ///         shape, offsets that do not ascend, ids out of range
  static KgData read(const std::filesystem::path& path, Placement& placement);
};

/// How much of a neighbour's embedding an edge passes on before any attention: A = sum over relations of L(A_r), with
/// d_r(x) the number of triples of relation r with head x and r' the inverse of r.
///
///   random_walk         sum over r of 1 / d_r(h)
///   symmetric           sum over r of 1 / sqrt(d_r(h) d_r'(t))
///   symmetric_upstream  sum over r of 1 / sqrt(d_r(h) d_r(t)), 0 where d_r(t) = 0: every interaction vanishes
enum class Laplacian : std::uint8_t { random_walk, symmetric, symmetric_upstream };

/// One value per pattern entry.
///
/// shapes   values (nnz)
/// dtypes   f32 | f64; computed in f64
/// source   Wang, He, Cao, Liu, Chua 2019, arXiv:1905.07854, and the authors' programs
void laplacian(const KgGraph& graph, Laplacian kind, const Tensor& values);

}  // namespace lockstep
