#include "lockstep/tasks/kgat/kgat_sampler.hpp"

#include "lockstep/device/kernel_arrays.hpp"
#include "support/test.hpp"
#include "tasks/kgat/graph_set.hpp"

namespace {

/// Five users of four items: one without items, one with all, one with all but item 2. Nodes 0-3 items, 4-8 users.
struct Toy : GraphSet {
  Toy() : GraphSet(4, 4, {{0, 3}, {}, {0, 1, 2, 3}, {0, 1, 3}, {2}}) {}
};

template <class T>
std::vector<T> here(const Stream& stream, std::span<const T> values) {
  std::vector<T> copy(values.size());
  copy_bytes(stream, copy.data(), values.data(), values.size_bytes());
  stream.synchronize();
  return copy;
}
/// The same values, then padding.
template <class T>
bool begins_with(const std::vector<T>& padded, const std::vector<T>& values) {
  return std::ranges::equal(std::span(padded).first(values.size()), values);
}

}  // namespace

TEST_SUITE("tasks.kgat_sampler.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("batches that the GPU draws are those of the host, in every step") {
    const Device device{DeviceKind::cuda, 0};
    Stream stream(device);
    std::vector<std::int32_t> most(299);  // of 300 items
    std::iota(most.begin(), most.end(), 1);
    const GraphSet few(7, 7, {{0}, {6}, {0, 1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}, {}, {3}}),
        many(300, 300, {most, {0, 299}, {5}}), one_each(2, 2, {{0}, {1}});
    for (const GraphSet* of : {&few, &many, &one_each})
      for (const std::uint64_t seed : {1U, 2U}) {
        const KgData& data = of->data;
        const KgatSampler sampler(data, seed);
        const std::optional<KgatTables> tables = sampler.tables(device, true);
        REQUIRE(tables);
        for (const std::int64_t count : {1, 2, 5, 90})
          for (const std::int64_t step : {0, 1, 1000000}) {
            CAPTURE(count);
            CAPTURE(step);
            CfBatch cf;
            KgBatch kg;
            sampler.interactions(step, count, cf, data.entities);
            sampler.triples(step, count, kg);
            Arena arena(device);
            const std::vector<ops::PoolDraw> draws = {sampler.draw_of(KgatSampler::Batch::interactions, step, count),
                                                      sampler.draw_of(KgatSampler::Batch::triples, step, count)};
            const auto [draw] = for_kernels(stream, arena, draws);
            const ops::PairBatch pairs = ops::pair_batch(
                stream, arena,
                {.count = count, .draw = draw.data(), .table = tables->interactions(data.items, data.entities)},
                data.nodes());
            CHECK(begins_with(here(stream, pairs.rows), cf.rows()));
            const ops::RankedPairs wanted = cf.pairs();
            for (const auto column : {&ops::RankedPairs::user, &ops::RankedPairs::liked, &ops::RankedPairs::other})
              CHECK(std::ranges::equal(here(stream, pairs.pairs.*column), wanted.*column));
            CHECK(here(stream, pairs.pairs.use) == cf.uses.use());
            const ops::TripleBatch triples =
                ops::triple_batch(stream, arena, {.count = count, .draw = draw.data() + 1, .table = tables->triples()},
                                  data.graph.relations, KgBatch::kChunk);
            CHECK(here(stream, triples.samples.head) == kg.head);
            CHECK(here(stream, triples.samples.tail) == kg.tail);
            CHECK(here(stream, triples.samples.other) == kg.other);
            CHECK(begins_with(here(stream, triples.rows), kg.rows()));
            CHECK(begins_with(here(stream, triples.relations), kg.relations));
            CHECK(begins_with(here(stream, triples.relation_chunks), kg.relation_chunks));
            std::vector<std::int64_t> places;
            for (const std::int32_t use : kg.uses.use()) places.push_back(kg.row_of_use(use));
            CHECK(here(stream, triples.places) == places);
          }
      }
  }
}

TEST_SUITE("tasks.kgat_sampler") {
  TEST_CASE("a drawn interaction has an item of the user and one that the user lacks") {
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

  TEST_CASE("drawn triples are in the graph, and with the other tail they are not") {
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

  TEST_CASE("a search for many triples finds those that a scan of the list finds") {
    const Toy toy;
    const KgGraph& graph = toy.data.graph;
    std::vector<std::int32_t> head, relation, tail;
    std::vector<bool> exists;
    for (std::int32_t h = 0; h < 9; ++h)
      for (std::int32_t r = 0; r < 2; ++r)
        for (std::int32_t t = 0; t < 9; ++t) {
          head.push_back(h), relation.push_back(r), tail.push_back(t);
          bool is = false;
          for (std::int64_t i = graph.indptr[to_size(h)]; i < graph.indptr[to_size(h) + 1]; ++i)
            is |= graph.tail[to_size(i)] == t && graph.rel[to_size(i)] == r;
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
      for (std::int64_t i = 0; i < chunk.count; ++i) CHECK(a.relation[to_size(chunk.first + i)] == chunk.relation);
      next += chunk.count;
    }
    CHECK(next == a.count());
    CHECK(a.relation_chunks.size() == a.relations.size() + 1);
    std::set<std::int64_t> rows;
    for (std::size_t n = 0; n < a.rows().size(); ++n)
      for (std::int64_t u = a.uses.use_ptr()[n]; u < a.uses.use_ptr()[n + 1]; ++u) {
        const std::int32_t use = a.uses.use()[to_size(u)];
        const auto sample = to_size(use / 3);
        CHECK(a.rows()[n] == (use % 3 == 0 ? a.head : use % 3 == 1 ? a.tail : a.other)[sample]);
        rows.insert(a.row_of_use(use));
      }
    CHECK(rows.size() == 900);
    CHECK(*rows.rbegin() == 899);
  }
}
