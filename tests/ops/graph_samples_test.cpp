// The batches that a GPU makes for knowledge-graph networks, against sorting on the host.

#include "lockstep/ops/graph_samples.hpp"

#include "lockstep/device/kernel_arrays.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

namespace {

using Rows = std::vector<std::int32_t>;

struct Gpu {
  Device device{DeviceKind::cuda, 0};
  Stream stream{device};
  Arena arena{device};
  template <class T>
  std::span<const T> there(const std::vector<T>& values) {
    return std::get<0>(for_kernels(stream, arena, values));
  }
  template <class T>
  std::vector<T> here(std::span<const T> values) const {
    std::vector<T> copy(values.size());
    copy_bytes(stream, copy.data(), values.data(), values.size_bytes());
    stream.synchronize();
    return copy;
  }
};

/// The uses of each row, ascending, by row.
std::map<std::int32_t, Rows> uses_of(const Rows& row_of_use) {
  std::map<std::int32_t, Rows> uses;
  for (std::size_t u = 0; u < row_of_use.size(); ++u) uses[row_of_use[u]].push_back(static_cast<std::int32_t>(u));
  return uses;
}

void check_lists(const Gpu& gpu, const auto& batch, const std::map<std::int32_t, Rows>& uses, std::size_t n) {
  Rows rows;
  std::vector<std::int64_t> ptr = {0};
  for (const auto& [row, of] : uses) rows.push_back(row), ptr.push_back(ptr.back() + std::ssize(of));
  rows.resize(n, -1);
  ptr.resize(n + 1, static_cast<std::int64_t>(n));
  CHECK(gpu.here(batch.rows) == rows);
  CHECK(gpu.here(batch.ptr) == ptr);
}

void check_pairs(Gpu& gpu, const ops::PairSource& source, const std::array<Rows, 3>& columns, std::int64_t nodes) {
  const ops::PairBatch batch = ops::pair_batch(gpu.stream, gpu.arena, source, nodes);
  Rows row_of_use, use, places;
  for (std::size_t b = 0; b < columns[0].size(); ++b)
    for (const Rows& column : columns) row_of_use.push_back(column[b]);
  const std::map<std::int32_t, Rows> uses = uses_of(row_of_use);
  check_lists(gpu, batch, uses, row_of_use.size());
  for (const auto& [row, of] : uses) use.insert(use.end(), of.begin(), of.end());
  CHECK(gpu.here(batch.pairs.use) == use);
  CHECK(gpu.here(batch.pairs.use_ptr) == gpu.here(batch.ptr));
  const std::array placed = {batch.pairs.user, batch.pairs.liked, batch.pairs.other};
  for (std::size_t k = 0; k < 3; ++k) {
    places.clear();
    for (const std::int32_t row : columns[k])
      places.push_back(static_cast<std::int32_t>(std::distance(uses.begin(), uses.find(row))));
    CHECK(gpu.here(placed[k]) == places);
  }
  // The rows, then further nodes from the last one down.
  std::vector<bool> listed(to_size(nodes), false);
  for (const auto& [row, of] : uses) listed[to_size(row)] = true;
  auto more = std::min<std::int64_t>(std::ssize(row_of_use), nodes) - std::ssize(uses);
  for (std::int64_t node = nodes - 1; more > 0; --node)
    if (!listed[to_size(node)]) listed[to_size(node)] = true, --more;
  Rows list;
  std::vector<std::uint64_t> bits(to_size((nodes + 63) / 64), 0);
  for (std::int64_t node = 0; node < nodes; ++node)
    if (listed[to_size(node)])
      list.push_back(static_cast<std::int32_t>(node)), bits[to_size(node / 64)] |= std::uint64_t{1} << (node % 64);
  CHECK(gpu.here(batch.listed) == list);
  CHECK(gpu.here(batch.bits) == bits);
}

constexpr std::int64_t kChunk = 4;

void check_triples(Gpu& gpu, const ops::TripleSource& source, const std::array<Rows, 4>& columns,
                   std::int64_t relations) {
  const ops::TripleBatch batch = ops::triple_batch(gpu.stream, gpu.arena, source, relations, kChunk);
  const auto count = std::ssize(columns[0]);
  Rows order(columns[0].size()), row_of_use, distinct;
  std::iota(order.begin(), order.end(), 0);
  const auto relation_of = [&](std::int32_t b) { return columns[1][to_size(b)]; };
  std::ranges::stable_sort(order, {}, relation_of);
  std::vector<std::int64_t> chunks, relation_chunks, places;  // of a chunk: relation, first, count
  for (std::int64_t at = 0; at < count; ++at) {
    const std::int32_t relation = relation_of(order[to_size(at)]);
    const bool next = distinct.empty() || distinct.back() != relation;
    if (next) distinct.push_back(relation), relation_chunks.push_back(std::ssize(chunks) / 3);
    if (next || chunks.back() == kChunk) chunks.insert(chunks.end(), {relation, at, 0});
    ++chunks.back();
    for (const std::size_t k : {0, 2, 3}) row_of_use.push_back(columns[k][to_size(order[to_size(at)])]);
  }
  const std::map<std::int32_t, Rows> uses = uses_of(row_of_use);
  check_lists(gpu, batch, uses, row_of_use.size());
  const std::array sorted = {batch.samples.head, batch.samples.tail, batch.samples.other};
  for (std::size_t k = 0; k < 3; ++k) {
    Rows wanted;
    for (std::size_t at = k; at < row_of_use.size(); at += 3) wanted.push_back(row_of_use[at]);
    CHECK(gpu.here(sorted[k]) == wanted);
  }
  for (const auto& [row, of] : uses)
    for (const std::int32_t use : of) {
      std::size_t c = 0;
      while (chunks[3 * c + 1] + chunks[3 * c + 2] <= use / 3) ++c;
      places.push_back(3 * chunks[3 * c + 1] + use % 3 * chunks[3 * c + 2] + use / 3 - chunks[3 * c + 1]);
    }
  CHECK(gpu.here(batch.places) == places);
  const auto most = to_size(std::min(count, relations));
  distinct.resize(most, -1);
  relation_chunks.resize(most + 1, std::ssize(chunks) / 3);
  CHECK(gpu.here(batch.relations) == distinct);
  CHECK(gpu.here(batch.relation_chunks) == relation_chunks);
  chunks.resize(3 * (to_size(count / kChunk) + most), 0);
  std::vector<std::int64_t> found;
  for (const ops::RelationChunk& chunk : gpu.here(batch.samples.chunks))
    found.insert(found.end(), {chunk.relation, chunk.first, chunk.count});
  CHECK(found == chunks);
}

/// Also with the last block first.
void in_both_orders(const auto& f) {
  f();
  const LastFirst order;
  f();
}

Rows random_rows(std::int64_t count, std::int64_t below, std::uint64_t sample) {
  const Philox draw(3, 0, "rows", sample);
  Rows rows;
  for (std::int64_t b = 0; b < count; ++b)
    rows.push_back(
        static_cast<std::int32_t>(draw.below(static_cast<std::uint64_t>(below), static_cast<std::uint64_t>(b))));
  return rows;
}

}  // namespace

TEST_SUITE("ops.graph_samples.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("a GPU lists the rows of the host's pairs, their uses and the nodes of the last layer") {
    // Nodes fewer and more than uses, on word boundaries and not; one row alone; as many uses as a block copies, and
    // more.
    for (const auto& [count, nodes] :
         {std::pair{1, 1}, std::pair{1, 500}, std::pair{5, 15}, std::pair{30, 64}, std::pair{40, 130},
          std::pair{70, 211}, std::pair{100, 1000}, std::pair{1365, 900}, std::pair{1370, 2000}}) {
      CAPTURE(count);
      CAPTURE(nodes);
      for (const std::int64_t last : {std::int64_t{1}, std::int64_t{nodes}}) {  // rows below it
        std::array<Rows, 3> columns;
        for (std::size_t k = 0; k < 3; ++k) columns[k] = random_rows(count, last, k);
        for (std::int32_t& row : columns[0]) row = static_cast<std::int32_t>(nodes - 1 - row);
        in_both_orders([&] {
          Gpu gpu;
          check_pairs(
              gpu, {.count = count, .columns = {gpu.there(columns[0]), gpu.there(columns[1]), gpu.there(columns[2])}},
              columns, nodes);
        });
      }
    }
  }

  TEST_CASE("a GPU sorts the host's triples by relation and cuts them into chunks") {
    for (const auto& [count, relations] :
         {std::pair{1, 1}, std::pair{1, 9}, std::pair{8, 1}, std::pair{9, 2}, std::pair{37, 5}, std::pair{50, 200}}) {
      CAPTURE(count);
      CAPTURE(relations);
      std::array<Rows, 4> columns;
      for (std::size_t k = 0; k < 4; ++k) columns[k] = random_rows(count, k == 1 ? relations : 60, k);
      in_both_orders([&] {
        Gpu gpu;
        check_triples(
            gpu,
            {.count = count,
             .columns = {gpu.there(columns[0]), gpu.there(columns[1]), gpu.there(columns[2]), gpu.there(columns[3])}},
            columns, relations);
      });
    }
  }

  TEST_CASE("a GPU draws the samples that the host draws") {
    // Users with one item, all but one, and half of them; user 1 cannot be drawn. Of ten nodes, three have triples:
    // node 0 few, node 1 with all but one tail, node 2 with all.
    const std::vector<std::int64_t> user_ptr = {0, 1, 1, 6, 9}, node_ptr = {0, 4, 13, 23, 23, 23, 23, 23, 23, 23, 23};
    const Rows item = {3, 0, 1, 2, 4, 5, 1, 3, 4}, users = {0, 2, 3}, heads = {0, 1, 2};
    Rows tail = {1, 1, 5, 9}, rel = {0, 1, 0, 2};
    for (const std::int32_t tails : {9, 10})
      for (std::int32_t t = 0; t < tails; ++t) tail.push_back(t), rel.push_back(tails - 9);
    for (const std::int64_t count : {1, 2, 3, 40})
      for (const std::int64_t step : {0, 7, 1 << 20}) {
        CAPTURE(count);
        CAPTURE(step);
        in_both_orders([&] {
          Gpu gpu;
          std::vector<ops::PoolDraw> draws = {{std::ssize(users), 5, "pairs", step, count},
                                              {std::ssize(heads), 5, "triples", step, count}};
          const std::span<const ops::PoolDraw> there = gpu.there(draws);
          const ops::InteractionTable pairs = {users, user_ptr, item, 6, 10};
          const ops::TripleTable triples = {heads, node_ptr, tail, rel};
          std::array<Rows, 3> of_pairs;
          std::array<Rows, 4> of_triples;
          for (std::int64_t b = 0; b < count; ++b) {
            const ops::DrawnPair pair = ops::drawn_pair(pairs, draws[0], b, ops::items_before);
            of_pairs[0].push_back(pair.user), of_pairs[1].push_back(pair.liked), of_pairs[2].push_back(pair.other);
            const ops::DrawnTriple triple = ops::drawn_triple(triples, draws[1], b);
            of_triples[0].push_back(triple.head), of_triples[1].push_back(triple.relation);
            of_triples[2].push_back(triple.tail), of_triples[3].push_back(triple.other);
          }
          check_pairs(gpu,
                      {.count = count,
                       .draw = there.data(),
                       .table = {gpu.there(users), gpu.there(user_ptr), gpu.there(item), 6, 10}},
                      of_pairs, 14);
          check_triples(gpu,
                        {.count = count,
                         .draw = there.data() + 1,
                         .table = {gpu.there(heads), gpu.there(node_ptr), gpu.there(tail), gpu.there(rel)}},
                        of_triples, 3);
        });
      }
  }
}
