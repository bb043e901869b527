#include "lockstep/tasks/kgat/kgat_sampler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>

using namespace lockstep;

namespace {

/// Five users of four items: one without items, one with all, one with all but item 2. Nodes 0-3 items, 4-8 users. One
/// relation each way between users and items.
struct Toy {
  std::vector<std::int64_t> ptr = {0, 2, 2, 6, 9, 10}, indptr = {0};
  std::vector<std::int32_t> item = {0, 3, 0, 1, 2, 3, 0, 1, 3, 2}, tail, rel;
  KgData data;
  Toy() {
    data.users = 5, data.items = data.entities = 4;
    data.train = {ptr, item};
    const auto end_row = [&] { indptr.push_back(static_cast<std::int64_t>(tail.size())); };
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t u = 0; u < 5; ++u)
        if (data.train.has(u, i)) tail.push_back(static_cast<std::int32_t>(4 + u)), rel.push_back(1);
      end_row();
    }
    for (std::int64_t u = 0; u < 5; ++u) {
      for (const std::int32_t i : data.train.of(u)) tail.push_back(i), rel.push_back(0);
      end_row();
    }
    data.graph.nodes = 9, data.graph.relations = 2;
    data.graph.indptr = indptr, data.graph.tail = tail, data.graph.rel = rel;
  }
};

}  // namespace

TEST_SUITE("tasks.kgat_sampler") {
  TEST_CASE("drawn interactions are a user's item and one that it lacks, of users that have both") {
    const Toy toy;
    const KgatSampler sampler(toy.data, 1);
    CfBatch batch;
    std::set<std::int32_t> users, others;
    for (std::int64_t step = 0; step < 200; ++step) {
      sampler.interactions(step, 3, batch, 4);
      CHECK(std::set(batch.user.begin(), batch.user.end()).size() == 3);  // all three that can be drawn
      for (std::size_t b = 0; b < 3; ++b) {
        CHECK(toy.data.train.has(batch.user[b] - 4, batch.liked[b]));
        CHECK(!toy.data.train.has(batch.user[b] - 4, batch.other[b]));
        users.insert(batch.user[b]);
        if (batch.user[b] == 4) others.insert(batch.other[b]);
      }
    }
    CHECK(users == std::set<std::int32_t>{4, 7, 8});
    CHECK(others == std::set<std::int32_t>{1, 2});
    sampler.interactions(0, 50, batch, 4);  // more than there are users: with replacement
    CHECK(batch.count() == 50);
  }

  TEST_CASE("drawn triples are triples, and with the other tail none") {
    const Toy toy;
    const KgatSampler sampler(toy.data, 1);
    KgBatch batch;
    std::set<std::int32_t> heads;
    for (std::int64_t step = 0; step < 100; ++step) {
      sampler.triples(step, 8, batch);
      for (std::size_t b = 0; b < 8; ++b) {
        CHECK(toy.data.graph.has(batch.head[b], batch.relation[b], batch.tail[b]));
        CHECK(!toy.data.graph.has(batch.head[b], batch.relation[b], batch.other[b]));
        heads.insert(batch.head[b]);
      }
      CHECK(std::is_sorted(batch.relation.begin(), batch.relation.end()));
    }
    CHECK(heads == std::set<std::int32_t>{0, 1, 2, 3, 4, 6, 7, 8});  // user 1 has no triples
  }

  TEST_CASE("a search for many triples finds those that one look through the list finds") {
    const Toy toy;
    const KgGraph& graph = toy.data.graph;
    std::vector<std::int32_t> head, relation, tail;
    std::vector<bool> exists;
    for (std::int32_t h = 0; h < 9; ++h)
      for (std::int32_t r = 0; r < 2; ++r)
        for (std::int32_t t = 0; t < 9; ++t) {
          head.push_back(h), relation.push_back(r), tail.push_back(t);
          bool is = false;
          for (std::int64_t i = toy.indptr[static_cast<std::size_t>(h)];
               i < toy.indptr[static_cast<std::size_t>(h) + 1]; ++i)
            is |= toy.tail[static_cast<std::size_t>(i)] == t && toy.rel[static_cast<std::size_t>(i)] == r;
          exists.push_back(is);
        }
    const auto found = std::make_unique<bool[]>(head.size());
    graph.find(head, relation, tail, {found.get(), head.size()});
    for (std::size_t i = 0; i < head.size(); ++i) {
      CHECK(found[i] == exists[i]);
      CHECK(graph.has(head[i], relation[i], tail[i]) == exists[i]);
    }
  }

  TEST_CASE("a batch is a function of seed and step, and its chunks and uses cover it once") {
    const Toy toy;
    const KgatSampler sampler(toy.data, 1), same(toy.data, 1), another(toy.data, 2);
    KgBatch a, b, c;
    sampler.triples(7, 300, a);
    sampler.triples(8, 300, b);
    CHECK(a.head != b.head);
    same.triples(7, 300, b);
    another.triples(7, 300, c);
    CHECK(a.head == b.head);
    CHECK(a.other == b.other);
    CHECK(a.head != c.head);
    std::int64_t next = 0;
    for (const KgBatch::Chunk& chunk : a.chunks) {
      CHECK(chunk.first == next);
      CHECK(chunk.count <= KgBatch::kChunk);
      for (std::int64_t i = 0; i < chunk.count; ++i)
        CHECK(a.relation[static_cast<std::size_t>(chunk.first + i)] == chunk.relation);
      next += chunk.count;
    }
    CHECK(next == a.count());
    CHECK(a.relation_chunks.size() == a.relations.size() + 1);
    std::set<std::int64_t> rows;
    for (std::size_t n = 0; n < a.rows().size(); ++n)
      for (std::int64_t u = a.uses.use_ptr()[n]; u < a.uses.use_ptr()[n + 1]; ++u) {
        const std::int32_t use = a.uses.use()[static_cast<std::size_t>(u)];
        const auto sample = static_cast<std::size_t>(use / 3);
        CHECK(a.rows()[n] == (use % 3 == 0 ? a.head : use % 3 == 1 ? a.tail : a.other)[sample]);
        rows.insert(a.row_of_use(use));
      }
    CHECK(rows.size() == 900);
    CHECK(*rows.rbegin() == 899);
  }
}
