#include "prep/kgat/kg_file.hpp"
#include "prep/kgat/kg_text.hpp"
#include "prep/set_file.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
using Edge = std::array<std::int64_t, 3>;  // head, tail, relation

/// A random graph with parallel edges, self loops, isolated nodes and users without items.
KgSet random_set(std::uint64_t seed) {
  const Philox random(seed, 0, "test.kg");
  std::string train, kg;
  std::uint64_t n = 0;
  for (int user = 0; user < 15; ++user) {
    train += std::to_string(user);
    for (std::uint64_t left = random.below(6, n++); left > 0; --left)
      train += " " + std::to_string(random.below(12, n++));
    train += "\n";
  }
  for (int line = 0; line < 120; ++line, n += 3) {
    kg += join(random.below(18, n), "\t", random.below(4, n + 1), "\t", random.below(18, n + 2), "\n");
  }
  return build_kg(train + "15 11\n", "0 3\n", kg + "2 0 2\n");
}

/// Section by section what the graph must be, from its definition alone.
std::set<Edge> edges_of(const KgSet& set) {
  std::set<Edge> edges;
  for (std::int64_t user = 0; user < set.sizes.users; ++user) {
    for (const std::int32_t item : set.train.of(user)) {
      edges.insert({set.sizes.entities + user, item, 0});
      edges.insert({item, set.sizes.entities + user, 1});
    }
  }
  for (const auto& [h, r, t] : set.triples) {
    edges.insert({h, t, r + 2});
    edges.insert({t, h, r + 2 + set.sizes.kg_relations});
  }
  return edges;
}
}  // namespace

TEST_SUITE("prep.kg_graph") {
  TEST_CASE("triples are those of the definition, sorted, and grouped by relation") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(seed);
      const KgSet set = random_set(seed);
      const Ckg& graph = set.ckg;
      const auto expected = edges_of(set);
      std::vector<Edge> found;
      for (std::int64_t h = 0; h < set.sizes.nodes(); ++h)
        for (std::int64_t e = graph.indptr[at(h)]; e < graph.indptr[at(h + 1)]; ++e)
          found.push_back({h, graph.tail[at(e)], graph.rel[at(e)]});
      CHECK(found == std::vector<Edge>(expected.begin(), expected.end()));
      CHECK(set.sizes.ckg_triples() == std::ssize(found));

      CHECK(graph.rel_indptr.back() == set.sizes.ckg_triples());
      std::vector<std::int64_t> seen;
      for (std::int64_t r = 0; r < set.sizes.relations(); ++r) {
        for (std::int64_t k = graph.rel_indptr[at(r)]; k < graph.rel_indptr[at(r + 1)]; ++k) {
          CHECK(graph.rel[at(graph.rel_perm[at(k)])] == r);
          if (k > graph.rel_indptr[at(r)]) CHECK(graph.rel_perm[at(k)] > graph.rel_perm[at(k - 1)]);
          seen.push_back(graph.rel_perm[at(k)]);
        }
      }
      std::sort(seen.begin(), seen.end());
      for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<std::int64_t>(i));
    }
  }

  TEST_CASE("the pattern is symmetric, its permutation an involution, its runs cover all triples") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(seed);
      const KgSet set = random_set(seed);
      const Ckg& graph = set.ckg;
      CHECK(graph.nnz() < set.sizes.ckg_triples());  // some edges are parallel
      CHECK(graph.edge_ptr.front() == 0);
      CHECK(graph.edge_ptr.back() == set.sizes.ckg_triples());
      for (std::int64_t h = 0; h < set.sizes.nodes(); ++h) {
        CHECK(graph.degree[at(h)] == graph.adj_indptr[at(h + 1)] - graph.adj_indptr[at(h)]);
        for (std::int64_t p = graph.adj_indptr[at(h)]; p < graph.adj_indptr[at(h + 1)]; ++p) {
          const std::int64_t q = graph.transpose[at(p)], t = graph.col[at(p)];
          CHECK(graph.col[at(q)] == h);
          CHECK(q >= graph.adj_indptr[at(t)]);
          CHECK(q < graph.adj_indptr[at(t + 1)]);
          CHECK(graph.transpose[at(q)] == p);
          CHECK(graph.edge_ptr[at(p)] < graph.edge_ptr[at(p + 1)]);
          for (std::int64_t e = graph.edge_ptr[at(p)]; e < graph.edge_ptr[at(p + 1)]; ++e) {
            CHECK(graph.tail[at(e)] == t);
            CHECK(e >= graph.indptr[at(h)]);
            CHECK(e < graph.indptr[at(h + 1)]);
          }
        }
      }
    }
  }

  TEST_CASE("initial values are the sums over relations of normalised matrices") {
    for (const SymmetricForm form : {SymmetricForm::sound, SymmetricForm::upstream}) {
      const KgSet set = random_set(7);
      const Ckg graph = build_ckg(set.sizes, set.train, set.triples, form);
      std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> out, in;  // (relation, node)
      for (const auto& [h, t, r] : edges_of(set)) ++out[{r, h}], ++in[{r, t}];
      std::map<std::pair<std::int64_t, std::int64_t>, double> walk, symmetric;
      for (const auto& [h, t, r] : edges_of(set)) {
        walk[{h, t}] += 1.0 / static_cast<double>(out[{r, h}]);
        const auto other = static_cast<double>(form == SymmetricForm::sound ? in[{r, t}] : out[{r, t}]);
        symmetric[{h, t}] += other == 0 ? 0 : 1 / std::sqrt(static_cast<double>(out[{r, h}]) * other);
      }
      double interactions = 0;
      for (std::int64_t h = 0; h < set.sizes.nodes(); ++h) {
        double row = 0;
        for (std::int64_t p = graph.adj_indptr[at(h)]; p < graph.adj_indptr[at(h + 1)]; ++p) {
          const std::pair place{h, static_cast<std::int64_t>(graph.col[at(p)])};
          CHECK(static_cast<double>(graph.random_walk[at(p)]) == Approx(walk.at(place)).epsilon(1e-6));
          CHECK(static_cast<double>(graph.symmetric[at(p)]) == Approx(symmetric.at(place)).epsilon(1e-6));
          row += static_cast<double>(graph.random_walk[at(p)]);
          if (h >= set.sizes.entities) interactions += static_cast<double>(graph.symmetric[at(p)]);
          if (form == SymmetricForm::sound)
            CHECK(graph.symmetric[at(p)] == Approx(graph.symmetric[at(graph.transpose[at(p)])]).epsilon(1e-6));
        }
        std::set<std::int64_t> leaving;
        for (std::int64_t e = graph.indptr[at(h)]; e < graph.indptr[at(h + 1)]; ++e) leaving.insert(graph.rel[at(e)]);
        CHECK(row == Approx(static_cast<double>(leaving.size())).epsilon(1e-6));
      }
      CHECK((interactions > 0) == (form == SymmetricForm::sound));  // upstream loses them all
    }
  }

  TEST_CASE("counts and offsets beyond 2^31 stay whole") {
    const std::int64_t billion = 1'000'000'000;
    CHECK(offsets_of(std::vector<std::int64_t>{2 * billion, 2 * billion, 0, 3 * billion}) ==
          std::vector<std::int64_t>{0, 2 * billion, 4 * billion, 4 * billion, 7 * billion});
    const KgSizes sizes{billion, billion / 2, billion, 1'000'000'000, 3 * billion, 5 * billion, billion};
    CHECK(sizes.nodes() == 2 * billion);
    CHECK(sizes.ckg_triples() == 16 * billion);
    CHECK(sizes.relations() == 2 * billion + 2);
    CHECK_NOTHROW(sizes.require_indexable());
    // Positions need 64 bits exactly when a position, not a count, goes beyond 2^31 - 1.
    CHECK(kg_index_type(std::int64_t{1} << 31) == H5Type::i64);
    CHECK(kg_index_type((std::int64_t{1} << 31) - 1) == H5Type::i32);
    const auto chunk_of = [](const Extents& shape) { return Storage{.elements = 1 << 20}.layout(shape).chunk; };
    CHECK(chunk_of({8 * billion}) == std::vector<std::int64_t>{1 << 20});
    CHECK(chunk_of({3 * billion, 3}) == std::vector<std::int64_t>{(1 << 20) / 3, 3});
    CHECK(chunk_of({5, 3}) == std::vector<std::int64_t>{5, 3});
    CHECK(chunk_of({0}).empty());
  }

  TEST_CASE("node and relation ids that do not fit 32 bits are refused") {
    const std::int64_t billion = 1'000'000'000;
    check_mentions(error_of(Fault::data, [&] { KgSizes{billion, 1, 3 * billion / 2, 1, 1, 1, 1}.require_indexable(); }),
                   "2500000000 nodes");
    check_mentions(error_of(Fault::data, [&] { KgSizes{1, 1, 1, 3 * billion / 2, 1, 1, 1}.require_indexable(); }),
                   "3000000002 relations");
    check_mentions(error_of(Fault::data, [&] { KgSizes{1, 9, 8, 1, 1, 1, 1}.require_indexable(); }),
                   "8 entities, fewer than the 9 items");
  }

  TEST_CASE("a validation set takes its share of each user, and leaves everyone an item") {
    std::string train;
    for (int user = 0; user < 400; ++user) {
      train += std::to_string(user);
      for (int i = 0; i < (user == 7 ? 1 : 15); ++i) train += " " + std::to_string((user * 3 + i * 7) % 200);
      train += "\n";
    }
    const KgSet whole = parse_kg(train, "", "0 0 1\n");
    KgSet set = whole;
    set.valid = carve(set, 0.1, 5, "prep.kg.valid");
    CHECK(set.sizes.train + std::ssize(set.valid.item) == whole.sizes.train);
    const double share = static_cast<double>(set.valid.item.size()) / static_cast<double>(whole.sizes.train);
    CHECK(share == Approx(0.1).epsilon(0.1));  // 600 of 5986, +- 10 per standard deviation
    std::set<std::size_t> sizes;
    for (std::int64_t user = 0; user < 400; ++user) {
      std::vector<std::int32_t> both(set.train.of(user).begin(), set.train.of(user).end());
      both.insert(both.end(), set.valid.of(user).begin(), set.valid.of(user).end());
      std::sort(both.begin(), both.end());
      CHECK(std::ranges::equal(both, whole.train.of(user)));
      CHECK(!set.train.of(user).empty());
      CHECK(std::ranges::is_sorted(set.valid.of(user)));
      sizes.insert(set.valid.of(user).size());
    }
    CHECK(sizes == std::set<std::size_t>{0, 1, 2});
    KgSet again = whole, other = whole;
    again.valid = carve(again, 0.1, 5, "prep.kg.valid");
    other.valid = carve(other, 0.1, 6, "prep.kg.valid");
    CHECK(again.valid.item == set.valid.item);
    CHECK(other.valid.item != set.valid.item);
    // A user's share does not depend on the others.
    KgSet first = parse_kg(train.substr(0, train.find("\n1 ") + 1), "", "0 0 1\n");
    first.valid = carve(first, 0.1, 5, "prep.kg.valid");
    CHECK(std::ranges::equal(first.valid.of(0), set.valid.of(0)));
    KgSet gap = parse_kg("0 1 2\n2 3 4\n", "", "0 0 1\n");  // user 1 has no items
    gap.valid = carve(gap, 0.9, 5, "prep.kg.valid");
    CHECK(gap.valid.item.size() == 2);
  }
}
