#include "lockstep/samples/triple_graph.hpp"

#include <algorithm>

namespace lockstep {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void sort_triples(TripleGraph& graph, std::int64_t nodes, std::span<const Triple> triples) {
  std::vector<std::int64_t> count(at(nodes), 0);
  for (const Triple& t : triples) ++count[at(t.head)];
  graph.indptr = offsets_of(count);

  // Packs (tail, relation) into one number with the same order.
  std::vector<std::uint64_t> keys(triples.size());
  std::vector<std::int64_t> cursor(graph.indptr.begin(), graph.indptr.end() - 1);
  for (const Triple& t : triples)
    keys[at(cursor[at(t.head)]++)] = static_cast<std::uint64_t>(t.tail) << 32 | static_cast<std::uint32_t>(t.relation);
  graph.tail.resize(keys.size());
  graph.rel.resize(keys.size());
  for (std::int64_t node = 0; node < nodes; ++node)
    std::sort(keys.begin() + graph.indptr[at(node)], keys.begin() + graph.indptr[at(node + 1)]);
  for (std::size_t e = 0; e < keys.size(); ++e) {
    graph.tail[e] = static_cast<std::int32_t>(keys[e] >> 32);
    graph.rel[e] = static_cast<std::int32_t>(keys[e] & 0xFFFFFFFFu);
  }
}

void group_by_relation(TripleGraph& graph, std::int64_t relations) {
  std::vector<std::int64_t> count(at(relations), 0);
  for (const std::int32_t relation : graph.rel) ++count[at(relation)];
  graph.rel_indptr = offsets_of(count);
  graph.rel_perm.resize(graph.rel.size());
  std::vector<std::int64_t> cursor(graph.rel_indptr.begin(), graph.rel_indptr.end() - 1);
  for (std::size_t e = 0; e < graph.rel.size(); ++e)
    graph.rel_perm[at(cursor[at(graph.rel[e])]++)] = static_cast<std::int64_t>(e);
}

/// Finds the distinct (head, tail) pairs, the triples of each, and the position of its mirror image.
void find_pattern(TripleGraph& graph, std::int64_t nodes) {
  graph.adj_indptr.assign(1, 0);
  graph.adj_indptr.reserve(at(nodes) + 1);
  for (std::int64_t node = 0; node < nodes; ++node) {
    const std::int64_t first = graph.indptr[at(node)];
    for (std::int64_t e = first; e < graph.indptr[at(node + 1)]; ++e) {
      if (e > first && graph.tail[at(e)] == graph.tail[at(e - 1)]) continue;
      graph.col.push_back(graph.tail[at(e)]);
      graph.edge_ptr.push_back(e);
    }
    graph.adj_indptr.push_back(graph.nnz());
  }
  graph.edge_ptr.push_back(std::ssize(graph.tail));

  // Rows ascend, so the entries (t, h) of a row t appear in the order of its columns.
  graph.transpose.resize(graph.col.size());
  std::vector<std::int64_t> cursor(graph.adj_indptr.begin(), graph.adj_indptr.end() - 1);
  for (std::size_t p = 0; p < graph.col.size(); ++p) graph.transpose[p] = cursor[at(graph.col[p])]++;
}

}  // namespace

std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> offsets(counts.size() + 1, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i];
  return offsets;
}

TripleGraph index_triples(std::int64_t nodes, std::int64_t relations, std::span<const Triple> triples) {
  TripleGraph graph;
  sort_triples(graph, nodes, triples);
  group_by_relation(graph, relations);
  find_pattern(graph, nodes);
  return graph;
}

}  // namespace lockstep
