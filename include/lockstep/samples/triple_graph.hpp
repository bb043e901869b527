#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Triple {
  std::int32_t head = 0, relation = 0, tail = 0;
  bool operator==(const Triple&) const = default;
};

/// Triples sorted by (head, tail, relation), and the pattern of distinct (head, tail) pairs in CSR form.
struct TripleGraph {
  std::vector<std::int64_t> indptr;                ///< (nodes + 1): triples per head
  std::vector<std::int32_t> tail, rel;             ///< (triples)
  std::vector<std::int64_t> rel_indptr, rel_perm;  ///< (relations + 1), (triples): grouped by relation, ascending
  std::vector<std::int64_t> adj_indptr;            ///< (nodes + 1)
  std::vector<std::int32_t> col;                   ///< (nnz)
  std::vector<std::int64_t> edge_ptr, transpose;   ///< (nnz + 1) triples of an entry; (nnz) position of (t, h)
  std::int64_t nnz() const { return std::ssize(col); }
};

/// Prefix sums 0, c0, c0 + c1, ...: the start of each run, and the end of the last.
std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> counts);

/// Builds the graph in O(T log(largest row)). The triples must include the inverse of each, so that the pattern is
/// symmetric. The input is not checked.
///
/// range   heads and tails 0 .. nodes-1; relation numbers 0 .. relations-1
TripleGraph index_triples(std::int64_t nodes, std::int64_t relations, std::span<const Triple> triples);

}  // namespace lockstep
