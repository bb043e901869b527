#include <vector>

#include "doctest/doctest.h"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "support/mpi_main.hpp"
#include "support/sequence_file.hpp"
#include "support/temp_dir.hpp"
#include "train/cpu_row_exchange.hpp"
#include "train/grad_sync.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kRows = 300, kWidth = 4;

/// A dense array, a table whose rows are chosen, and another dense array.
struct Store {
  ParamStore params{DType::f64};
  Param* table;
  Store() {
    params.add("before", {5}, init::zeros());
    table = &params.add("table", {kRows, kWidth}, init::zeros());
    table->row_sparse = true;
    params.add("after", {3}, init::zeros());
    params.allocate(1);
  }
};

/// What rank r, thread t adds: rows that differ from rank to rank and overlap, and everything dense.
void fill(Gradients& g, const Store& s, int rank, int thread, std::int64_t stride) {
  g.zero();
  for (const Param& p : s.params.all()) {
    if (&p == s.table) continue;
    for (double& value : g.of(p).span<double>()) value += 1 + rank + 10 * thread;
  }
  for (std::int64_t row = 2 * rank + thread; row < kRows; row += stride) {
    g.touched(*s.table)->touch(row);
    for (std::int64_t c = 0; c < kWidth; ++c)
      g.of(*s.table).data<double>()[row * kWidth + c] += static_cast<double>(row * kWidth + c + rank);
  }
}

/// Sums over threads and ranks: by the exchange if it wants to, else whole.
std::vector<double> exchanged(CpuRowExchange<double>& rows, Gradients& a, Gradients& b, std::size_t* sent) {
  Communicator& comm = test_world().communicator();
  std::vector<double> extras = {1, 2}, sum;
  for (std::int64_t i = 0; i < a.flat().size(); ++i)
    sum.push_back(a.flat().data<double>()[i] + b.flat().data<double>()[i]);
  const std::span<double> message = rows.pack(extras, sum.data());
  *sent = message.size();
  if (message.empty()) {
    comm.all_reduce(std::span<double>(sum), ReduceOp::sum, "whole");
    return sum;
  }
  comm.all_reduce(message, ReduceOp::sum, "rows");
  rows.unpack(extras, sum.data());
  CHECK(extras == std::vector<double>{1.0 * comm.size(), 2.0 * comm.size()});
  return sum;
}

}  // namespace

TEST_SUITE("train.row_exchange") {
  TEST_CASE("packed rows have the same sums as the whole gradient, in fewer elements, in every step") {
    Communicator& comm = test_world().communicator();
    const Store s;
    Gradients a(s.params), b(s.params);
    const std::vector<Gradients*> parts = {&a, &b};
    CpuRowExchange<double> rows(comm, s.params, {0, s.params.flat_size()}, parts);
    CHECK(rows.on() == (comm.size() > 1));
    for (const std::int64_t stride : {40, 55, 7}) {  // the first step decides
      fill(a, s, comm.rank(), 0, stride), fill(b, s, comm.rank(), 1, stride);
      std::vector<double> whole;
      for (std::int64_t i = 0; i < a.flat().size(); ++i)
        whole.push_back(a.flat().data<double>()[i] + b.flat().data<double>()[i]);
      comm.all_reduce(std::span<double>(whole), ReduceOp::sum, "whole");
      std::size_t sent = 0;
      CHECK(exchanged(rows, a, b, &sent) == whole);
      if (comm.size() > 1) {
        CHECK(sent > 0);
        if (stride > 7) CHECK(sent < whole.size() / 2);
      }
    }
    CHECK(rows.choice().starts_with("by rows") == (comm.size() > 1));
  }

  TEST_CASE("a table of which every row is touched travels whole, and no bitmap goes before it again") {
    Communicator& comm = test_world().communicator();
    const Store s;
    Gradients a(s.params), b(s.params);
    const std::vector<Gradients*> parts = {&a, &b};
    CpuRowExchange<double> rows(comm, s.params, {0, s.params.flat_size()}, parts);
    fill(a, s, 0, 0, 1), fill(b, s, 0, 1, 1);
    std::size_t sent = 1;
    exchanged(rows, a, b, &sent);
    CHECK(sent == 0);
    CHECK_FALSE(rows.on());
    if (comm.size() > 1) CHECK(rows.choice().starts_with("whole, rows touched in the first step: table 100 % of 300"));
  }

  TEST_CASE("a step of a sequence model has the same gradient on any ranks and threads, with its items by rows") {
    Communicator& comm = test_world().communicator();
    LocalPlacement placement;
    const test::TempDir dir;
    prep::write_sequence_set(dir / "data.h5", test::gap_sessions(30));
    SasRecArch arch;
    arch.slots = 9, arch.hidden = 6, arch.heads = 2, arch.dropout = 0.3;
    SequenceTask model({.arch = arch, .dtype = DType::f64, .seed = 2}, SequenceData::read(dir / "data.h5", placement));
    const GlobalBatch batch{.seed = 3, .epoch = 1, .step = 4, .first = 2, .count = 7};
    const auto alone = make_self_communicator();
    ShardedStep reference(*alone, model, {.threads = 1, .shards = 1});
    const StepSums expected = reference.run(batch);
    for (const int threads : {1, 2}) {
      ShardedStep step(comm, model, {.threads = threads, .shards = 4});
      for (int again = 0; again < 2; ++again) {
        const StepSums sums = step.run(batch);
        CHECK(sums.loss == doctest::Approx(expected.loss).epsilon(1e-12));
        CHECK(sums.weight == expected.weight);
        for (std::int64_t i = 0; i < step.gradient().size(); ++i)
          CHECK(step.gradient().data<double>()[i] ==
                doctest::Approx(reference.gradient().data<double>()[i]).epsilon(1e-10).scale(1));
      }
      CHECK(step.row_choice().empty() == (comm.size() == 1));
    }
  }

  TEST_CASE("embeddings that are most of the gradient go first, weights after them: the same gradient") {
    Communicator& comm = test_world().communicator();
    LocalPlacement placement;
    const test::TempDir dir;
    prep::write_sequence_set(dir / "data.h5", test::gap_sessions(30));
    SasRecArch arch;
    arch.slots = 9, arch.hidden = 2, arch.heads = 1, arch.blocks = 1, arch.dropout = 0.3;
    for (const bool recompute : {false, true}) {
      arch.recompute = recompute;
      SequenceTask model({.arch = arch, .dtype = DType::f64, .seed = 2},
                         SequenceData::read(dir / "data.h5", placement));
      const std::vector<FlatRange> buckets = plan_buckets(model.params(), 1);
      CHECK(embeddings_first(buckets));
      CHECK(buckets.front().end == model.params().at("pos_emb.weight").offset);
      CHECK_FALSE(embeddings_first(plan_buckets(model.params(), 1 << 20)));
      std::int64_t covered = 0;
      for (const FlatRange& bucket : buckets) covered += bucket.count();
      CHECK(covered == model.params().flat_size());
      const GlobalBatch batch{.seed = 3, .epoch = 1, .step = 4, .first = 2, .count = 17};
      for (const int threads : {1, 2}) {
        ShardedStep whole(comm, model, {.threads = threads, .shards = 4});
        ShardedStep pieces(comm, model, {.threads = threads, .shards = 4, .bucket_bytes = 1});
        const StepSums expected = whole.run(batch), sums = pieces.run(batch);
        CHECK(sums.loss == doctest::Approx(expected.loss).epsilon(1e-12));
        CHECK(sums.weight == expected.weight);
        for (std::int64_t i = 0; i < whole.gradient().size(); ++i)
          CHECK(pieces.gradient().data<double>()[i] ==
                doctest::Approx(whole.gradient().data<double>()[i]).epsilon(1e-10).scale(1));
      }
    }
  }
}
