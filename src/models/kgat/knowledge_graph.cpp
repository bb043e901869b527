#include "lockstep/models/kgat/knowledge_graph.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

bool KgGraph::has(std::int64_t head, std::int64_t relation, std::int64_t wanted) const {
  const auto h = static_cast<std::size_t>(head);
  const auto first = tail.begin() + indptr[h], last = tail.begin() + indptr[h + 1];
  const auto [low, high] = std::equal_range(first, last, static_cast<std::int32_t>(wanted));
  return std::binary_search(rel.begin() + (low - tail.begin()), rel.begin() + (high - tail.begin()),
                            static_cast<std::int32_t>(relation));
}

void laplacian(const KgGraph& graph, Laplacian kind, const Tensor& values) {
  require(values.size() == graph.nnz(), "laplacian: ", values.size(), " values for ", graph.nnz(), " pattern entries");
  const std::int64_t half = graph.relations / 2 - 1;  // relations of the knowledge graph, without inverses
  const auto inverse = [&](std::int32_t r) { return r < 2 ? 1 - r : r < 2 + half ? r + half : r - half; };
  std::vector<std::int32_t> head(static_cast<std::size_t>(graph.triples()));
  for (std::int64_t h = 0; h < graph.nodes; ++h) {
    const auto n = static_cast<std::size_t>(h);
    std::fill(head.begin() + graph.indptr[n], head.begin() + graph.indptr[n + 1], static_cast<std::int32_t>(h));
  }
  // For each relation: the degrees of its heads and tails, then the shares of its triples.
  std::vector<double> share(static_cast<std::size_t>(graph.triples()));
  std::vector<std::int64_t> out(static_cast<std::size_t>(graph.nodes), 0), in(out);
  const auto count = [&](std::int64_t relation, std::vector<std::int64_t>& degrees, std::int64_t step) {
    const auto r = static_cast<std::size_t>(relation);
    for (std::int64_t i = graph.rel_indptr[r]; i < graph.rel_indptr[r + 1]; ++i)
      degrees[static_cast<std::size_t>(head[static_cast<std::size_t>(graph.rel_perm[static_cast<std::size_t>(i)])])] +=
          step;
  };
  for (std::int32_t r = 0; r < graph.relations; ++r) {
    const std::int32_t other = kind == Laplacian::symmetric ? inverse(r) : r;
    count(r, out, 1);
    count(other, in, 1);
    const auto n = static_cast<std::size_t>(r);
    for (std::int64_t i = graph.rel_indptr[n]; i < graph.rel_indptr[n + 1]; ++i) {
      const auto e = static_cast<std::size_t>(graph.rel_perm[static_cast<std::size_t>(i)]);
      const auto from = static_cast<double>(out[static_cast<std::size_t>(head[e])]);
      const auto to = static_cast<double>(in[static_cast<std::size_t>(graph.tail[e])]);
      share[e] = kind == Laplacian::random_walk ? 1 / from : to == 0 ? 0 : 1 / std::sqrt(from * to);
    }
    count(r, out, -1);
    count(other, in, -1);
  }
  visit_float(values.dtype(), [&]<class T>() {
    for (std::int64_t e = 0; e < graph.nnz(); ++e) {
      const auto n = static_cast<std::size_t>(e);
      double sum = 0;
      for (std::int64_t i = graph.edge_ptr[n]; i < graph.edge_ptr[n + 1]; ++i)
        sum += share[static_cast<std::size_t>(i)];
      values.data<T>()[e] = static_cast<T>(sum);
    }
  });
}

}  // namespace lockstep
