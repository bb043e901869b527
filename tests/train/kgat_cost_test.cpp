#include "train/kgat_cost.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace lockstep;

namespace {

/// A ring of so many nodes, each with its `reach` neighbours to either side.
struct Ring {
  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int32_t> col;
  KgGraph graph;
  Ring(std::int64_t nodes, std::int64_t reach) {
    for (std::int64_t n = 0; n < nodes; ++n) {
      for (std::int64_t k = -reach; k <= reach; ++k)
        if (k != 0) col.push_back(static_cast<std::int32_t>((n + k + nodes) % nodes));
      indptr.push_back(static_cast<std::int64_t>(col.size()));
    }
    graph.nodes = nodes, graph.adj_indptr = indptr, graph.col = col;
  }
};

}  // namespace

TEST_SUITE("train.kgat_cost") {
  TEST_CASE("few rows are needed: nested rows on any ranks; alone nothing is exchanged") {
    const Ring ring(100000, 8);
    const std::vector<std::int32_t> nodes = {5, 70000};
    for (const int ranks : {1, 2, 8}) {
      const KgatCosts costs = kgat_costs({}, ring.graph, nodes, {.ranks = ranks});
      CHECK(costs.cheapest() == KgatMode::nested_rows);
      CHECK((costs.of[1].exchange > 0) == (ranks > 1));
      CHECK(costs.text().find("column-switch") != std::string::npos);
    }
  }
  TEST_CASE("a tiny graph that a batch needs whole is replicated") {
    const Ring ring(60, 2);
    std::vector<std::int32_t> nodes;
    for (std::int32_t n = 0; n < 60; ++n) nodes.push_back(n);
    CHECK(kgat_costs({}, ring.graph, nodes, {.ranks = 4, .one_host = false}).cheapest() == KgatMode::replicate);
  }
  TEST_CASE("many ranks exchange less by columns than by rows") {
    const Ring ring(50000, 40);
    std::vector<std::int32_t> nodes;
    for (std::int32_t n = 0; n < 50000; n += 3) nodes.push_back(n);
    const KgatCosts costs = kgat_costs({}, ring.graph, nodes, {.ranks = 8, .one_host = false});
    CHECK(costs.of[static_cast<std::size_t>(KgatMode::column_switch)].exchange <
          costs.of[static_cast<std::size_t>(KgatMode::row_partition)].exchange);
    CHECK(costs.cheapest() == KgatMode::column_switch);
  }
}
