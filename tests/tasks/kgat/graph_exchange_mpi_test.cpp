#include "support/devices.hpp"
#include "support/mpi_gpus.hpp"
#include "support/test.hpp"
#include "tasks/kgat/graph_exchange.hpp"

namespace {

/// Offsets of rows with very different numbers of entries.
std::vector<std::int64_t> offsets(std::int64_t nodes) {
  std::vector<std::int64_t> indptr = {0};
  for (std::int64_t n = 0; n < nodes; ++n) indptr.push_back(indptr.back() + (n % 13 == 5 ? 900 : n % 7));
  return indptr;
}

constexpr std::int64_t kNodes = 523;

}  // namespace

TEST_SUITE("tasks.graph_exchange") {
  TEST_CASE("segments hold all nodes once and about equal work, beyond 2^31 entries too") {
    for (const std::int64_t scale : {std::int64_t{1}, std::int64_t{1} << 40}) {
      std::vector<std::int64_t> indptr = offsets(kNodes);
      for (std::int64_t& offset : indptr) offset *= scale;
      for (const int ranks : {1, 2, 3, 4, 16, 20}) {
        const NodeCut cut(indptr, 16, ranks);
        CHECK(cut.begin(0) == 0);
        CHECK(cut.nodes() == kNodes);
        const std::int64_t heaviest = 900 * scale + NodeCut::kRowCost,
                           total = indptr.back() + NodeCut::kRowCost * kNodes;
        for (std::int64_t s = 0; s < 16; ++s) {
          const std::int64_t work = indptr[to_size(cut.begin(s + 1))] - indptr[to_size(cut.begin(s))] +
                                    NodeCut::kRowCost * (cut.begin(s + 1) - cut.begin(s));
          CHECK(work >= 0);
          CHECK(work <= total / 16 + 2 * heaviest);
        }
        for (int r = 0; r < ranks; ++r) CHECK(cut.last(r) == (r + 1 < ranks ? cut.first(r + 1) : kNodes));
        CHECK(cut.begin(5) == NodeCut(indptr, 16, 1).begin(5));  // the ranks do not matter
      }
    }
  }

  TEST_CASE("fewer nodes than segments leave some segments empty") {
    const std::vector<std::int64_t> indptr = {0, 4, 4, 9};
    const NodeCut cut(indptr, 16, 4);
    CHECK(cut.nodes() == 3);
    std::int64_t rows = 0;
    for (int r = 0; r < 4; ++r) rows += cut.last(r) - cut.first(r);
    CHECK(rows == 3);
  }

  TEST_CASE("shared rows come from their owners, the others stay") {
    Communicator& comm = test_world().communicator();
    const std::vector<std::int64_t> indptr = offsets(kNodes);
    GraphExchange exchange(comm, NodeCut(indptr, 16, comm.size()), true);
    std::vector<std::int32_t> some;
    for (std::int32_t n = 0; n < kNodes; ++n)
      if (n % 3 != 1) some.push_back(n);
    const OwnedTensor whole = random_tensor(DType::f32, {kNodes, 5}, "table");
    const auto round = [&](const ops::RowSet& rows, auto listed) {
      const OwnedTensor table(DType::f32, {kNodes, 5});
      for (std::int64_t n = exchange.first(); n < exchange.last(); ++n)
        std::copy_n(whole->data<float>() + n * 5, 5, table->data<float>() + n * 5);
      exchange.share(table, rows, "test rows");
      bool right = true;
      for (std::int64_t n = 0; n < kNodes; ++n) {
        const bool own = n >= exchange.first() && n < exchange.last();
        const OwnedTensor none(DType::f32, {1, 5});
        right = right && same_bits(table->slice(n, 1), own || listed(n) ? whole->slice(n, 1) : none.view());
      }
      CHECK(right);
    };
    round(ops::RowSet::list(some), [](std::int64_t n) { return n % 3 != 1; });
    round(ops::RowSet::range(0, kNodes), [](std::int64_t) { return true; });
    round(ops::RowSet::range(100, 17), [](std::int64_t n) { return n >= 100 && n < 117; });
    round(ops::RowSet::list({}), [](std::int64_t) { return false; });
  }

  TEST_CASE("values of rows' entries are gathered") {
    Communicator& comm = test_world().communicator();
    const std::vector<std::int64_t> indptr = offsets(kNodes);
    GraphExchange exchange(comm, NodeCut(indptr, 16, comm.size()), true);
    const OwnedTensor whole = random_tensor(DType::f32, {indptr.back()}, "values"), mine(DType::f32, {indptr.back()});
    const std::int64_t from = indptr[to_size(exchange.first())], to = indptr[to_size(exchange.last())];
    std::copy(whole->data<float>() + from, whole->data<float>() + to, mine->data<float>() + from);
    exchange.share_values(mine, indptr, "test values");
    CHECK(same_bits(mine, whole));
  }

  TEST_CASE("rows and values of a GPU are those of the CPU" * doctest::skip(gpu_count() == 0)) {
    Communicator& comm = test_world().communicator();
    const Device gpu = own_gpu();
    const std::vector<std::int64_t> indptr = offsets(kNodes);
    GraphExchange here(comm, NodeCut(indptr, 16, comm.size()), true),
        there(comm, NodeCut(indptr, 16, comm.size()), true, gpu);
    std::vector<std::int32_t> some;
    for (std::int32_t n = 0; n < kNodes; ++n)
      if (n % 3 != 1) some.push_back(n);
    const Resident<std::int32_t> placed(std::span<const std::int32_t>(some), gpu);
    const auto seed = static_cast<std::uint64_t>(1 + comm.rank());  // each rank has numbers of its own
    for (const std::int64_t width : {1, 5, 37}) {
      CAPTURE(width);
      const OwnedTensor table = random_tensor(DType::f32, {kNodes, width}, "numbers", seed),
                        on_gpu = on_device(table, gpu);
      here.share(table, ops::RowSet::list(some), "rows");
      there.share(on_gpu, {ops::RowSet::list(placed.span()), ops::RowSet::list(some)}, "rows");
      CHECK(same_bits(on_cpu(on_gpu), table));
    }
    const OwnedTensor values = random_tensor(DType::f64, {indptr.back()}, "numbers", seed),
                      values_gpu = on_device(values, gpu);
    here.share_values(values, indptr, "values");
    there.share_values(values_gpu, indptr, "values");
    CHECK(same_bits(on_cpu(values_gpu), values));
    CHECK(there.received_bytes() == here.received_bytes());
  }

  TEST_CASE("without a partition every rank owns everything and nothing moves") {
    Communicator& comm = test_world().communicator();
    const std::vector<std::int64_t> indptr = offsets(kNodes);
    GraphExchange exchange(comm, NodeCut(indptr, 16, comm.size()), false);
    CHECK(exchange.first() == 0);
    CHECK(exchange.last() == kNodes);
    exchange.share(OwnedTensor(DType::f32, {kNodes, 2}), ops::RowSet::range(0, kNodes), "nothing");
    CHECK(exchange.received_bytes() == 0);
  }
}
