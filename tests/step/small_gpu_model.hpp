#pragma once
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "support/elements.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// Two layers with dropout, fitted to points that are a function of their number.
class SmallModel final : public ShardModel {
 public:
  explicit SmallModel(Device gpu = {DeviceKind::cuda, 0}) {
    first_ = add_linear(params_, "first", 5, 8, init::normal(0.5), init::zeros());
    second_ = add_linear(params_, "second", 8, 3, init::normal(0.5), init::zeros());
    params_.allocate(3);
    params_.move_to(gpu);
  }
  ParamStore& params() override { return params_; }
  const DrawnShard& draw(Arena& host, const Shard& shard) const override {
    const auto points = [&](std::int64_t columns, double factor) {
      const Tensor t = allocate(host, DType::f32, {shard.count, columns});
      for (std::int64_t i = 0; i < t.size(); ++i)
        t.data<float>()[i] = static_cast<float>(((shard.first * columns + i) * 37 % 101) * factor - 0.5);
      if (shard.step == huge_at || shard.step == huge_too) t.data<float>()[0] = 1e25f;
      return t;
    };
    const auto list = [&]<class T>(std::int64_t count, T first) {
      const std::span<T> all(static_cast<T*>(host.allocate(to_size(count) * sizeof(T))), to_size(count));
      for (T& value : all) value = first++;
      return all;
    };
    auto* batch = new (host.allocate(sizeof(Batch)))
        Batch{{.weight = static_cast<double>(shard.count)}, points(5, 0.01), points(3, 0.02), {}};
    batch->rows.offsets = list(shard.count + 1, std::int64_t{0});
    batch->rows.samples = list(shard.count, static_cast<std::uint64_t>(shard.first));
    return *batch;
  }
  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    ++passes;
    const auto& batch = samples_of<Batch>(tape.host_arena(), shard);
    const Dropout dropped = {.rate = 0.25,
                             .seed = 9,
                             .step = static_cast<std::uint64_t>(shard.step),
                             .site = "test",
                             .step_on_gpu = shard.step_on_gpu};
    const Var x = tape.constant(to_tape(tape, batch.x));
    const Var h = dropout(tape, linear(tape, x, first_, Activation::relu), dropped, batch.rows);
    const Var loss = regression_loss(tape, linear(tape, h, second_), to_tape(tape, batch.y), Regression::mse);
    if (waits && waits(shard.step)) tape.stream().synchronize();
    return {loss, static_cast<double>(shard.count)};
  }
  bool draws() const override { return apart; }

  std::function<bool(std::int64_t step)> waits;  ///< whether loss() waits for the GPU, which no graph can contain
  bool apart = true;                             ///< draws()
  std::int64_t huge_at = -1, huge_too = -1;      ///< steps whose loss is infinite
  mutable int passes = 0;                        ///< calls of loss(): steps that are not repeated

 private:
  struct Batch : DrawnShard {
    Tensor x, y;
    SampleRows rows;
  };
  ParamStore params_;
  Linear first_, second_;
};

}  // namespace lockstep::test
