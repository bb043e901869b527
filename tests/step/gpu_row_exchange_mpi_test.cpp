#include "lockstep/base/log.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/transfer.hpp"
#include "step/gpu_row_exchange.hpp"
#include "support/elements.hpp"
#include "support/mpi_gpus.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kWidth = 4;

/// Two tables, one before and one behind dense weights, fitted to points that are functions of the sample's number.
class TwoTables final : public ShardModel {
 public:
  TwoTables(std::int64_t items, std::int64_t users, bool row_sparse) {
    items_ = &params_.add("items", {items, kWidth}, init::normal(0.5));
    layer_ = add_linear(params_, "layer", kWidth, 3, init::normal(0.5), init::zeros());
    users_ = &params_.add("users", {users, kWidth}, init::normal(0.5));
    items_->row_sparse = users_->row_sparse = row_sparse;
    params_.allocate(3);
    params_.move_to(own_gpu());
  }
  ParamStore& params() override { return params_; }
  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    const auto ids = [&](std::int64_t rows, std::int64_t factor) {
      std::vector<std::int32_t> values;
      for (std::int64_t i = 0; i < shard.count; ++i)
        values.push_back(static_cast<std::int32_t>((shard.first + i) * factor % rows));
      return tape.keep(std::span<const std::int32_t>(values));
    };
    const Tensor target = allocate(tape.host_arena(), DType::f64, {shard.count, 3});
    for (std::int64_t i = 0; i < target.size(); ++i)
      target.data<double>()[i] = static_cast<double>((shard.first * 3 + i) * 37 % 101) * 0.02 - 0.5;
    const Var tables = add(tape, embedding(tape, *items_, ids(items_->shape[0], 7)),
                           embedding(tape, *users_, ids(users_->shape[0], 5)));
    return {regression_loss(tape, linear(tape, tables, layer_), to_tape(tape, target), Regression::mse),
            static_cast<double>(shard.count)};
  }

 private:
  ParamStore params_{DType::f64};
  Param *items_, *users_;
  Linear layer_;
};

/// In micro-batches; the last one may have fewer samples than there are ranks.
GlobalBatch batch_at(std::int64_t step) {
  return {.step = step, .first = 10 * step, .count = step % 3 == 2 ? 15 : 20, .micro = 7};
}

/// Two ranks' sums do not depend on their order.
void check_same(const std::vector<double>& a, const std::vector<double>& b) {
  if (test_world().size() <= 2) CHECK(a == b);
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  CHECK(worst < 1e-12);
}

/// Steps of both models must have the same gradients.
std::string compare_steps(TwoTables& by_rows, std::int64_t items, std::int64_t users, const StepOptions& options) {
  TwoTables dense(items, users, false);
  Communicator& comm = test_world().communicator();
  const auto rows = make_sharded_step(comm, by_rows, options);
  const auto whole = make_sharded_step(comm, dense, options);
  for (std::int64_t step = 0; step < 12; ++step) {
    CAPTURE(step);
    const StepSums expected = whole->run(batch_at(step));
    const std::vector<double> gradient = elements<double>(whole->gradient());
    const StepSums sums = rows->run(batch_at(step));
    CHECK(sums.loss == Approx(expected.loss).epsilon(1e-12));
    CHECK(sums.weight == expected.weight);
    check_same(elements<double>(rows->gradient()), gradient);
  }
  CHECK(whole->row_choice().empty());
  return rows->row_choice();
}

}  // namespace

TEST_SUITE("step.gpu_row_exchange" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("packed rows of a GPU have the same sums as the whole gradient, in fewer elements") {
    Communicator& comm = test_world().communicator();
    TwoTables model(300, 90, true);
    ParamStore& params = model.params();
    Gradients gradients(params);
    const FlatRange bucket{0, params.flat_size()};
    GpuRowExchange rows(comm, params, std::span(&bucket, 1), gradients, 1);
    Stream stream(own_gpu());
    Arena arena(own_gpu());
    for (const std::int64_t stride : {40, 55, 7, 400, 0}) {  // the first step decides; in the last one no rank has rows
      arena.reset();
      gradients.zero();
      std::vector<double> whole;
      {
        const HostView host(gradients.flat(), HostView::Access::write);
        for (const Param& p : params.all()) {
          double* to = host->data<double>() + p.offset;
          const std::int64_t first = !p.row_sparse ? 0 : stride == 0 ? p.shape[0] : 2 * comm.rank();
          for (std::int64_t row = first; row < p.shape[0]; row += p.row_sparse ? stride : 1) {
            if (p.row_sparse) gradients.touched(p)->touch(row);
            for (std::int64_t c = 0; c < p.shape.size() / p.shape[0]; ++c)
              to[row * p.shape.columns() + c] = static_cast<double>(100 * row + 10 * c + comm.rank());
          }
        }
        whole = {host->data<double>(), host->data<double>() + host->size()};
      }
      comm.all_reduce(std::span(whole), ReduceOp::sum, "whole");
      rows.begin();
      for (const Param& p : params.all()) {
        CHECK(rows.may_pack(0) == (comm.size() == 1));  // until both tables are ready
        rows.ready(p);
      }
      CHECK(rows.may_pack(0));
      const Tensor message = rows.pack(stream, arena, 0);
      {
        const HostView host(message, HostView::Access::write);
        comm.all_reduce(host->span<double>(), ReduceOp::sum, "rows");
      }
      rows.unpack(stream);
      CHECK(elements<double>(gradients.flat()) == whole);
      if (comm.size() == 1) CHECK(message.raw() == gradients.flat().raw());
      if (comm.size() > 1 && stride != 7) CHECK(message.size() < gradients.flat().size() / 2);
    }
    const std::string choice = rows.row_exchanges()[0]->choice();
    CHECK(choice.starts_with("by rows, rows touched in the first step: items ") == (comm.size() > 1));
  }

  TEST_CASE("a bucket of a GPU is sent by rows if its tables have at least this many bytes") {
    Communicator& comm = test_world().communicator();
    TwoTables model(300, 90, true);
    Gradients gradients(model.params());
    const FlatRange bucket{0, model.params().flat_size()};
    constexpr std::int64_t kBytes = (300 + 90) * kWidth * 8;
    for (const std::int64_t least : {kBytes, kBytes + 8}) {
      const GpuRowExchange rows(comm, model.params(), std::span(&bucket, 1), gradients, least);
      CHECK(rows.on() == (comm.size() > 1 && least == kBytes));
    }
  }

  TEST_CASE("tables of 5 MB are sent by rows between GPUs of several hosts, and as a whole on one host") {
    Communicator& comm = test_world().communicator();
    const Speaker self = log::speaker();  // NOLINT(performance-unnecessary-copy-initialization): it changes
    for (const std::int64_t rows : {156'249, 156'250}) {  // of 32 bytes
      TwoTables model(rows - 90, 90, true);
      Gradients gradients(model.params());
      const FlatRange bucket{0, model.params().flat_size()};
      for (const bool apart : {false, true}) {
        log::set_speaker({self.rank, self.ranks, apart ? join("node", comm.rank()) : "node"});
        const GpuRowExchange exchange(comm, model.params(), std::span(&bucket, 1), gradients, 0);
        log::set_speaker(self);
        CHECK(exchange.on() == (comm.size() > 1 && apart && rows == 156'250));
      }
    }
  }

  TEST_CASE("steps with tables by rows between GPUs have the gradients of steps with tables as a whole") {
    const bool several = test_world().size() > 1;
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 20}) {
      CAPTURE(bucket_bytes);
      TwoTables model(300, 90, true);
      const std::string choice = compare_steps(
          model, 300, 90, {.bucket_bytes = bucket_bytes, .gpu_bucket_bytes = bucket_bytes, .gpu_row_bytes = 1});
      CHECK(choice.starts_with("by rows, rows touched in the first step: ") == several);
      CHECK((choice.find("items 6.7 % of 300") != std::string::npos) == several);
      CHECK((choice.find("users 20 % of 90") != std::string::npos) == several);
    }
  }

  TEST_CASE("rows of gradients that leave a GPU through host memory are those of whole tables") {
    TwoTables model(300, 90, true);
    compare_steps(model, 300, 90, {.shards = 8, .reproducible = true});
    const std::string choice = compare_steps(model, 300, 90, {.backend = Backend::mpi});
    CHECK(choice.starts_with("by rows, ") == (test_world().size() > 1));
  }

  TEST_CASE("of two tables on GPUs one is sent by rows, and one whose rows are all touched as a whole") {
    TwoTables model(300, 23, true);
    const std::string choice =
        compare_steps(model, 300, 23, {.bucket_bytes = 1, .gpu_bucket_bytes = 1, .gpu_row_bytes = 1});
    CHECK((choice.find("by rows, rows touched in the first step: items 6.7 % of 300") != std::string::npos) ==
          (test_world().size() > 1));
    CHECK((choice.find("whole, rows touched in the first step: users 87 % of 23") != std::string::npos) ==
          (test_world().size() > 1));
  }
}
