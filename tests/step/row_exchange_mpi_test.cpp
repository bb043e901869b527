#include <optional>

#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "step/cpu_row_exchange.hpp"
#include "step/grad_sync.hpp"
#include "support/gradcheck.hpp"
#include "support/mpi_main.hpp"
#include "support/sequence_file.hpp"
#include "support/test.hpp"

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

/// Adds the gradient of rank r, thread t: overlapping rows that differ between ranks, and all dense elements.
void fill(PartSum<double>& sum, const Store& s, int rank, int thread, std::int64_t stride) {
  Gradients& g = sum.part(thread);
  g.zero();
  for (const Param& p : s.params.all()) {
    if (&p == s.table) continue;
    for (double& value : g.of(p).span<double>()) value += 1 + rank + 10 * thread;
  }
  for (std::int64_t row = 2 * rank + thread; row < kRows; row += stride) {
    const std::int64_t place = g.touched(*s.table)->touch(row);
    for (std::int64_t c = 0; c < kWidth; ++c)
      g.of(*s.table).data<double>()[place * kWidth + c] += static_cast<double>(row * kWidth + c + rank);
  }
}

/// Sums over threads and ranks, by rows if the exchange decides so, else whole.
std::vector<double> exchanged(CpuRowExchange<double>& rows, PartSum<double>& parts, std::size_t* sent) {
  Communicator& comm = test_world().communicator();
  std::vector<double> extras = {1, 2};
  parts.add({0, parts.gradient().size()});
  const std::span<double> sum = parts.gradient().span<double>(), message = rows.pack(extras, sum.data());
  *sent = message.size();
  if (message.empty()) {
    comm.all_reduce(sum, ReduceOp::sum, "whole");
  } else {
    comm.all_reduce(message, ReduceOp::sum, "rows");
    rows.unpack(extras, sum.data());
    CHECK(extras == std::vector<double>{1.0 * comm.size(), 2.0 * comm.size()});
  }
  return {sum.begin(), sum.end()};
}

/// The sum over threads and ranks of whole vectors.
std::vector<double> whole_sum(PartSum<double>& parts, const Store& s) {
  std::vector<double> whole(to_size(s.params.flat_size()));
  for (const std::int64_t thread : {0, 1}) {
    for (const Param& p : s.params.all()) {
      const OwnedTensor part = unpacked(parts.part(thread), p);
      for (std::int64_t i = 0; i < p.shape.size(); ++i) whole[to_size(p.offset + i)] += part->data<double>()[i];
    }
  }
  test_world().communicator().all_reduce(std::span<double>(whole), ReduceOp::sum, "whole");
  return whole;
}

constexpr std::int32_t kItems = 5000;
/// A sequence model; a step touches few of its items.
std::unique_ptr<SequenceTask> large_table(ItemLoss::Kind loss, bool row_sparse, double l2) {
  std::vector<std::vector<std::int32_t>> items(40);
  for (std::int32_t user = 0; user < 40; ++user)
    for (std::int32_t i = 0; i < 5 + user % 9; ++i)
      items[to_size(user)].push_back(1 + (user * 613 + i * 1409) % kItems);
  SasRecArch arch;
  arch.slots = 9, arch.hidden = 6, arch.heads = 2, arch.dropout = 0.3, arch.loss = {.kind = loss, .negatives = 7};
  auto task = std::make_unique<SequenceTask>(SequenceTask::Options{.arch = arch, .seed = 2},
                                             read_set(sequence_set(items, kItems)));
  Param& table = task->params().at("item_emb.weight");
  table.row_sparse = row_sparse;
  table.l2 = l2;
  return task;
}

}  // namespace

TEST_SUITE("step.row_exchange") {
  TEST_CASE("packed rows have the same sums as the whole gradient, in fewer elements, in every step") {
    Communicator& comm = test_world().communicator();
    const Store s;
    PartSum<double> parts(s.params, 2, PartSum<double>::Order::chain);
    CpuRowExchange<double> rows(comm, s.params, {0, s.params.flat_size()}, parts.nonzero());
    CHECK(rows.on() == (comm.size() > 1));
    for (const std::int64_t stride : {40, 55, 7}) {  // the first step decides
      fill(parts, s, comm.rank(), 0, stride), fill(parts, s, comm.rank(), 1, stride);
      const std::vector<double> whole = whole_sum(parts, s);
      std::size_t sent = 0;
      CHECK(exchanged(rows, parts, &sent) == whole);
      if (comm.size() > 1) {
        CHECK(sent > 0);
        if (stride > 7) CHECK(sent < whole.size() / 2);
      }
    }
    CHECK(rows.decisions().choice().starts_with("by rows") == (comm.size() > 1));
  }

  TEST_CASE("a table whose rows are all touched is sent whole, and no bitmap precedes it again") {
    Communicator& comm = test_world().communicator();
    const Store s;
    PartSum<double> parts(s.params, 2, PartSum<double>::Order::chain);
    CpuRowExchange<double> rows(comm, s.params, {0, s.params.flat_size()}, parts.nonzero());
    fill(parts, s, 0, 0, 1), fill(parts, s, 0, 1, 1);
    std::size_t sent = 1;
    exchanged(rows, parts, &sent);
    CHECK(sent == 0);
    CHECK_FALSE(rows.on());
    if (comm.size() > 1)
      CHECK(rows.decisions().choice().starts_with("whole, rows touched in the first step: table 100 % of 300"));
  }

  TEST_CASE("a step of a sequence model has the same gradient on any ranks and threads, with its items by rows") {
    Communicator& comm = test_world().communicator();
    SasRecArch arch;
    arch.slots = 9, arch.hidden = 6, arch.heads = 2, arch.dropout = 0.3;
    SequenceTask model({.arch = arch, .dtype = DType::f64, .seed = 2}, read_set(gap_sessions(30)));
    const GlobalBatch batch{.seed = 3, .epoch = 1, .step = 4, .first = 2, .count = 7};
    const auto alone = make_self_communicator();
    const auto reference = make_sharded_step(*alone, model, {.threads = 1, .shards = 1});
    const StepSums expected = reference->run(batch);
    for (const int threads : {1, 2}) {
      const auto step = make_sharded_step(comm, model, {.threads = threads, .shards = 4});
      for (int again = 0; again < 2; ++again) {
        const StepSums sums = step->run(batch);
        CHECK(sums.loss == Approx(expected.loss).epsilon(1e-12));
        CHECK(sums.weight == expected.weight);
        CHECK(difference(step->gradient(), reference->gradient()) < 1e-10);
      }
      CHECK(step->row_choice().empty() == (comm.size() == 1));
    }
  }

  TEST_CASE("sums over touched rows have the bits of sums over whole tables, in every step, and so have the weights") {
    Communicator& comm = test_world().communicator();
    const auto alone = make_self_communicator();
    for (const ItemLoss::Kind loss : {ItemLoss::Kind::bce, ItemLoss::Kind::sampled_softmax}) {
      for (const bool reproducible : {true, false}) {
        for (const bool lazy : {false, true}) {
          for (const int threads : {1, 2, 3}) {
            CAPTURE(reproducible);
            CAPTURE(lazy);
            CAPTURE(threads);
            const double l2 = threads == 3 ? 0.01 : 0;
            // In the default mode the bits depend on ranks and threads.
            Communicator& ours = reproducible ? comm : *alone;
            const auto by_rows = large_table(loss, true, l2), whole = large_table(loss, false, l2);
            const StepOptions options{.threads = threads, .shards = 8, .reproducible = reproducible};
            StepOptions simple = options;
            if (reproducible) simple.threads = 1;
            const auto steps = make_sharded_step(ours, *by_rows, options);
            const auto reference = make_sharded_step(*alone, *whole, simple);
            const OptimizerOptions adam{.lazy = lazy};
            const auto update = make_optimizer(adam, by_rows->params(), trainable_ranges(by_rows->params()));
            reference->run({.seed = 3, .count = 9});  // makes its gradients, without rows
            whole->params().at("item_emb.weight").row_sparse = lazy;
            const auto update_whole = make_optimizer(adam, whole->params(), trainable_ranges(whole->params()));
            // A third model defers the rows without gradient.
            const auto deferred = large_table(loss, true, l2);
            std::optional<LazyAdam> late;
            CHECK(LazyAdam::defers(adam, deferred->params()) == (!lazy && l2 == 0));
            if (!lazy && l2 == 0) late.emplace(adam, deferred->params());
            const auto reads = make_sharded_step(ours, *deferred, options);
            for (std::int64_t step = 0; step < 4; ++step) {
              const GlobalBatch batch{.seed = 3, .step = step, .first = 9 * step, .count = step == 2 ? 3 : 9};
              const StepSums sums = steps->run(batch), expected = reference->run(batch);
              CHECK(sums.loss == expected.loss);
              CHECK(same_bits(steps->gradient(), reference->gradient()));
              CHECK(add_penalty(by_rows->params(), steps->gradient(), sums.weight, lazy) ==
                    add_penalty(whole->params(), Tensor(reference->gradient()), sums.weight, lazy));
              CHECK(gradient_norm(steps->gradient(), by_rows->norm_ranges()) ==
                    gradient_norm(Tensor(reference->gradient()), whole->norm_ranges()));
              update->step(steps->gradient(), 0.01, 1 / sums.weight);
              update_whole->step(Tensor(reference->gradient()), 0.01, 1 / sums.weight);
              CHECK(same_bits(by_rows->params().values(), whole->params().values()));
              if (!late) continue;
              CHECK(reads->run(batch).loss == expected.loss);
              CHECK(same_bits(reads->gradient(), reference->gradient()));
              late->step(reads->gradient(), 0.01, 1 / sums.weight);
            }
            if (late) {
              CHECK_FALSE(same_bits(deferred->params().values(), whole->params().values()));
              late->flush();
              CHECK(same_bits(deferred->params().values(), whole->params().values()));
              for (std::size_t i = 0; i < late->state().size(); ++i) {
                CHECK(late->state()[i].name == update_whole->state()[i].name);
                CHECK(same_bits(late->state()[i].value, update_whole->state()[i].value));
              }
            }
            std::int64_t rows = 0;
            for (const auto& table : steps->gradient().nonzero->tables())
              for_each_bit(table.rows, 0, table.param->shape[0], [&](std::int64_t) { ++rows; });
            CHECK(rows > 0);
            CHECK(rows < (l2 > 0 && !lazy ? kItems + 2 : 400));
          }
        }
      }
    }
  }

  TEST_CASE("embeddings that dominate the gradient are sent first, weights after them: the same gradient") {
    Communicator& comm = test_world().communicator();
    SasRecArch arch;
    arch.slots = 9, arch.hidden = 2, arch.heads = 1, arch.blocks = 1, arch.dropout = 0.3;
    for (const bool recompute : {false, true}) {
      arch.recompute = recompute;
      SequenceTask model({.arch = arch, .dtype = DType::f64, .seed = 2}, read_set(gap_sessions(30)));
      const std::vector<FlatRange> buckets = plan_buckets(model.params(), 1);
      CHECK(embeddings_first(buckets));
      CHECK(buckets.front().end == model.params().at("pos_emb.weight").offset);
      CHECK_FALSE(embeddings_first(plan_buckets(model.params(), 1 << 20)));
      std::int64_t covered = 0;
      for (const FlatRange& bucket : buckets) covered += bucket.count();
      CHECK(covered == model.params().flat_size());
      const GlobalBatch batch{.seed = 3, .epoch = 1, .step = 4, .first = 2, .count = 17};
      for (const int threads : {1, 2}) {
        const auto whole = make_sharded_step(comm, model, {.threads = threads, .shards = 4});
        const auto pieces = make_sharded_step(comm, model, {.threads = threads, .shards = 4, .bucket_bytes = 1});
        const StepSums expected = whole->run(batch), sums = pieces->run(batch);
        CHECK(sums.loss == Approx(expected.loss).epsilon(1e-12));
        CHECK(sums.weight == expected.weight);
        CHECK(difference(pieces->gradient(), whole->gradient()) < 1e-10);
      }
    }
  }
}
