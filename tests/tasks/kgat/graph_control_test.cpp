#include "support/test.hpp"
#include "tasks/kgat/graph_set.hpp"

namespace {

constexpr std::int32_t kItems = 40, kUsers = 10, kRelations = 2;

/// Items with two relations to each other, which users have by turns; relation 1 has self-loops and parallel edges.
struct Toy : GraphSet {
  explicit Toy(bool with_triples = true) : GraphSet(kItems, kItems, of_users(), triples(with_triples), kRelations) {}
  static std::vector<std::vector<std::int32_t>> of_users() {
    std::vector<std::vector<std::int32_t>> all(kUsers);
    for (std::int32_t i = 0; i < kItems; ++i) all[to_size(i % kUsers)].push_back(i);
    return all;
  }
  static std::vector<Triple> triples(bool wanted) {
    std::vector<Triple> all;
    for (std::int32_t i = 0; wanted && i < kItems; ++i) all.insert(all.end(), {{i, 0, i / 4}, {i, 1, i % 7}});
    return all;
  }
};

using Sorted = std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>>;
/// (head, relation, tail) of relations first .. last - 1, sorted.
Sorted triples_of(const KgGraph& graph, std::int32_t first, std::int32_t last) {
  Sorted all;
  for (std::int64_t h = 0; h < graph.nodes; ++h)
    for (auto e = to_size(graph.indptr[to_size(h)]); e < to_size(graph.indptr[to_size(h) + 1]); ++e)
      if (graph.rel[e] >= first && graph.rel[e] < last)
        all.emplace_back(static_cast<std::int32_t>(h), graph.rel[e], graph.tail[e]);
  std::sort(all.begin(), all.end());
  return all;
}

/// The number of triples of each (head, relation).
std::map<std::pair<std::int32_t, std::int32_t>, int> degrees(const Sorted& triples) {
  std::map<std::pair<std::int32_t, std::int32_t>, int> count;
  for (const auto& [head, relation, tail] : triples) ++count[{head, relation}];
  return count;
}

}  // namespace

TEST_SUITE("tasks.graph_control") {
  TEST_CASE("a shuffled graph keeps the interactions, and each node's triples per relation and side") {
    const Toy toy;
    const KgData shuffled = toy.data.with(GraphControl::shuffled, 5);
    const KgGraph &was = toy.data.graph, &now = shuffled.graph;
    CHECK(triples_of(now, 0, 2) == triples_of(was, 0, 2));
    CHECK(triples_of(now, 2, 6) != triples_of(was, 2, 6));
    CHECK(degrees(triples_of(now, 0, 6)) == degrees(triples_of(was, 0, 6)));  // an inverse counts the tails
    Sorted mirrored;
    for (const auto& [head, relation, tail] : triples_of(now, 2, 4)) mirrored.emplace_back(tail, relation + 2, head);
    std::sort(mirrored.begin(), mirrored.end());
    CHECK(mirrored == triples_of(now, 4, 6));
    for (std::size_t p = 0; p < to_size(now.nnz()); ++p)
      CHECK(now.transpose[to_size(now.transpose[p])] == static_cast<std::int64_t>(p));
    CHECK(triples_of(toy.data.with(GraphControl::shuffled, 5).graph, 2, 6) == triples_of(now, 2, 6));
    CHECK(triples_of(toy.data.with(GraphControl::shuffled, 6).graph, 2, 6) != triples_of(now, 2, 6));
  }

  TEST_CASE("without the graph the interactions stay, and the relations keep their numbers") {
    const Toy toy;
    const KgData removed = toy.data.with(GraphControl::removed, 5);
    CHECK(removed.graph.relations == toy.data.graph.relations);
    CHECK(triples_of(removed.graph, 0, 6) == triples_of(toy.data.graph, 0, 2));
    CHECK(removed.graph.nnz() == 2 * toy.data.train.count());
    CHECK(removed.graph.rel_indptr.back() == removed.graph.rel_indptr[2]);
    CHECK(triples_of(toy.data.with(GraphControl::whole, 5).graph, 0, 6) == triples_of(toy.data.graph, 0, 6));
  }

  TEST_CASE("interactions alone have no graph to shuffle or remove") {
    const Toy bare(false);
    for (const GraphControl control : {GraphControl::shuffled, GraphControl::removed}) {
      const std::string message = error_of(Fault::usage, [&] { bare.data.with(control, 1); });
      check_mentions(message, name(control), "no triples besides its interactions", "data.graph = whole");
    }
    CHECK(bare.data.with(GraphControl::whole, 1).graph.nnz() == 2 * kItems);
  }
}
