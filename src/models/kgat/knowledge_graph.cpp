#include "lockstep/models/kgat/knowledge_graph.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

bool KgGraph::has(std::int64_t head, std::int64_t relation, std::int64_t wanted) const {
  const auto h = static_cast<std::int32_t>(head), r = static_cast<std::int32_t>(relation),
             t = static_cast<std::int32_t>(wanted);
  bool found = false;
  find({&h, 1}, {&r, 1}, {&t, 1}, {&found, 1});
  return found;
}

void KgGraph::find(std::span<const std::int32_t> head, std::span<const std::int32_t> relation,
                   std::span<const std::int32_t> wanted, std::span<bool> found) const {
  constexpr std::size_t kBlock = 64;
  std::array<const std::int32_t*, kBlock> at;
  std::array<std::int64_t, kBlock> left;
  for (std::size_t first = 0; first < head.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, head.size() - first);
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto h = static_cast<std::size_t>(head[first + i]);
      at[i] = tail.data() + indptr[h];
      left[i] = indptr[h + 1] - indptr[h];
      longest = std::max(longest, left[i]);
    }
    // Bisects for the first tail that is not below. The searches are interleaved, so that their memory accesses
    // overlap.
    for (; longest > 0; longest /= 2)
      for (std::size_t i = 0; i < count; ++i) {
        if (left[i] == 0) continue;
        const std::int64_t half = (left[i] + 1) / 2;
        at[i] += static_cast<std::int64_t>(at[i][half - 1] < wanted[first + i]) * half;
        left[i] -= half;
      }
    for (std::size_t i = 0; i < count; ++i) {
      // Triples with the same head and tail are sorted by relation.
      const std::int32_t* const end = tail.data() + indptr[static_cast<std::size_t>(head[first + i]) + 1];
      bool& triple = found[first + i] = false;
      for (const std::int32_t* t = at[i]; t != end && *t == wanted[first + i] && !triple; ++t)
        triple = rel[t - tail.data()] == relation[first + i];
    }
  }
}

void laplacian(const KgGraph& graph, Laplacian kind, const Tensor& values) {
  require(values.size() == graph.nnz(), "laplacian: ", values.size(), " values for ", graph.nnz(), " pattern entries");
  const std::int64_t half = graph.relations / 2 - 1;  // relations of the knowledge graph, without inverses
  const auto inverse = [&](std::int32_t r) { return r < 2 ? 1 - r : r < 2 + half ? r + half : r - half; };
  std::vector<std::int32_t> head(graph.triples());
  for (std::int64_t h = 0; h < graph.nodes; ++h) {
    const auto n = static_cast<std::size_t>(h);
    std::fill(head.begin() + graph.indptr[n], head.begin() + graph.indptr[n + 1], static_cast<std::int32_t>(h));
  }
  // For each relation: the degrees of its heads and tails, then the weights of its triples.
  std::vector<double> share(graph.triples());
  std::vector<std::int64_t> out(graph.nodes, 0), in(out);
  const auto count = [&](std::int64_t relation, std::vector<std::int64_t>& degrees, std::int64_t step) {
    const auto r = static_cast<std::size_t>(relation);
    for (std::int64_t i = graph.rel_indptr[r]; i < graph.rel_indptr[r + 1]; ++i)
      degrees[head[graph.rel_perm[i]]] += step;
  };
  for (std::int32_t r = 0; r < graph.relations; ++r) {
    const std::int32_t other = kind == Laplacian::symmetric ? inverse(r) : r;
    count(r, out, 1);
    count(other, in, 1);
    const auto n = static_cast<std::size_t>(r);
    for (std::int64_t i = graph.rel_indptr[n]; i < graph.rel_indptr[n + 1]; ++i) {
      const auto e = static_cast<std::size_t>(graph.rel_perm[i]);
      const auto from = static_cast<double>(out[head[e]]);
      const auto to = static_cast<double>(in[graph.tail[e]]);
      share[e] = kind == Laplacian::random_walk ? 1 / from : to == 0 ? 0 : 1 / std::sqrt(from * to);
    }
    count(r, out, -1);
    count(other, in, -1);
  }
  visit_float(values.dtype(), [&]<class T>() {
    for (std::int64_t e = 0; e < graph.nnz(); ++e) {
      const auto n = static_cast<std::size_t>(e);
      double sum = 0;
      for (std::int64_t i = graph.edge_ptr[n]; i < graph.edge_ptr[n + 1]; ++i) sum += share[i];
      values.data<T>()[e] = static_cast<T>(sum);
    }
  });
}

}  // namespace lockstep
