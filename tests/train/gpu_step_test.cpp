#include <doctest/doctest.h>

#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/train/sharded_step.hpp"

using namespace lockstep;

namespace {

/// Two layers fitted to points that are a function of their number.
class SmallModel final : public ShardTask {
 public:
  SmallModel() {
    first_ = add_linear(params_, "first", 5, 8, init::normal(0.5), init::zeros());
    second_ = add_linear(params_, "second", 8, 3, init::normal(0.5), init::zeros());
    params_.allocate(3);
    params_.move_to({DeviceKind::cuda, 0});
  }
  const char* kind() const override { return "small"; }
  ParamStore& params() override { return params_; }
  std::int64_t size(Split) const override { return 100; }
  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    const auto points = [&](std::int64_t columns, double factor) {
      const Tensor t = allocate(tape.host_arena(), DType::f32, {shard.count, columns});
      for (std::int64_t i = 0; i < t.size(); ++i)
        t.data<float>()[i] = static_cast<float>(((shard.first * columns + i) * 37 % 101) * factor - 0.5);
      return to_tape(tape, t);
    };
    const Var h = linear(tape, tape.constant(points(5, 0.01)), first_, Activation::relu);
    const Var loss = regression_loss(tape, linear(tape, h, second_), points(3, 0.02), Regression::mse);
    if (waits) tape.stream().synchronize();
    return {loss, static_cast<double>(shard.count)};
  }
  std::int64_t sum_count() const override { return 0; }
  void evaluate(Tape&, Split, std::int64_t, std::int64_t, double*) const override {}
  std::vector<Metric> metrics(Split, const std::vector<double>&) const override { return {}; }
  void save(H5File&) const override {}
  std::uint64_t data_hash() const override { return 0; }

  bool waits = false;

 private:
  ParamStore params_;
  Linear first_, second_;
};

GlobalBatch batch_at(std::int64_t step) {
  return {.step = step, .first = 10 * step, .count = step % 3 == 2 ? 13 : 20, .micro = 7};
}

std::vector<float> bits(const Tensor& t) {
  const HostView host(t);
  return {host->data<float>(), host->data<float>() + host->size()};
}

}  // namespace

TEST_SUITE("train.gpu_step.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("a prepared step has the same bits, and an unused prepared step changes nothing") {
    SmallModel model;
    const auto alone = make_self_communicator();
    ShardedStep calls(*alone, model, {.graphs = Graphs::off}), graphs(*alone, model, {.graphs = Graphs::on});
    for (std::int64_t step = 0; step < 12; ++step) {
      CAPTURE(step);
      const GlobalBatch batch = batch_at(step);
      const unsigned flags = step == 6 ? unsigned{kCheckpoint} : 0;
      const StepSums expected = calls.run(batch, flags);
      const std::vector<float> gradient = bits(calls.gradient());
      graphs.start(batch, flags);
      graphs.prepare(batch_at(step == 4 ? 50 : step + 1));
      const StepSums sums = graphs.finish();
      CHECK(sums.loss == expected.loss);
      CHECK(sums.weight == static_cast<double>(batch.count));
      CHECK(sums.flags == flags);
      CHECK(bits(graphs.gradient()) == gradient);
      if (step == 7) const Buffer freed(model.params().device(), 64);  // a graph may know its address
    }
  }

  TEST_CASE(
      "a loss that waits for the GPU is found out: steps go on without graphs, or end where these are asked for") {
    SmallModel model;
    const auto alone = make_self_communicator();
    ShardedStep automatic(*alone, model, {.graphs = Graphs::automatic}), on(*alone, model, {.graphs = Graphs::on});
    model.waits = true;
    const auto take = [&](ShardedStep& steps, std::int64_t step) {
      steps.start(batch_at(step));
      steps.prepare(batch_at(step + 1));
      return steps.finish().weight;
    };
    for (std::int64_t step = 0; step < 12; ++step)
      CHECK(take(automatic, step) == static_cast<double>(batch_at(step).count));
    CHECK_THROWS_WITH_AS(
        [&] {
          for (std::int64_t step = 0; step < 12; ++step) take(on, step);
        }(),
        doctest::Contains("a step cannot be captured in a graph: waiting for the GPU"), Error);
  }
}
