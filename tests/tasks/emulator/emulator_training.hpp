#pragma once
#include "lockstep/comm/communicator.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "support/devices.hpp"
#include "support/emulator_file.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// A task whose step may be one kernel or not.
class EmulatorModel final : public EmulatorTask {
 public:
  EmulatorModel(Options options, EmulatorData data, bool dense)
      : EmulatorTask(std::move(options), std::move(data)), dense_(dense) {}
  std::optional<DenseNetwork> dense_network() const override {
    return dense_ ? EmulatorTask::dense_network() : std::nullopt;
  }

 private:
  bool dense_;
};

struct EmulatorNetwork {
  std::int64_t in = 4, out = 2, hidden = 7, layers = 2, rows = 200;
  ops::Activation activation = ops::Activation::gelu;
  ops::Regression loss = ops::Regression::mse;
  DType dtype = DType::f64;
  bool bootstrap = false;
};

/// A network in training, on a GPU or the CPU.
struct EmulatorTraining {
  EmulatorTraining(const EmulatorNetwork& n, bool dense, Device device = {DeviceKind::cuda, 0},
                   Communicator* ranks = nullptr)
      : comm(ranks) {
    if (ranks == nullptr) comm = (alone = make_self_communicator()).get();
    EmulatorTask::Options options;
    options.arch = {.hidden = n.hidden, .layers = n.layers, .activation = n.activation};
    options.loss.kind = n.loss;
    options.dtype = n.dtype;
    options.seed = 3;
    options.bias_init = BiasInit::torch;
    options.bootstrap = n.bootstrap;
    model = std::make_unique<EmulatorModel>(options, read_data(emulator_contents(n.rows, n.in, n.out)), dense);
    model->move_to(device);
    ranges = trainable_ranges(model->params());
    optimizer = make_optimizer({.name = "adamw", .weight_decay = 0.01}, model->params(), ranges);
    average.emplace(model->params(), 0.9);
  }
  /// Steps over these numbers of samples. The outcomes are in order.
  void train(const std::vector<std::int64_t>& counts, double clip_norm, Graphs graphs = Graphs::automatic) {
    const GpuUpdate update(model->params(), optimizer.get(), ranges, {.clip_norm = clip_norm});
    const auto steps = make_sharded_step(*comm, *model, {.graphs = graphs}, &update);
    const auto add = [&](const std::optional<EndedStep>& ended) {
      if (ended) outcomes.push_back(ended->outcome);
    };
    std::int64_t first = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      steps->start({.seed = 5, .epoch = 1, .step = static_cast<std::int64_t>(i), .first = first, .count = counts[i]},
                   kCheckpoint, {.lr = 0.01 * static_cast<double>(1 + i % 3), .average = &*average});
      add(steps->take(false));
      first = (first + counts[i]) % 20;
    }
    add(steps->take(true));
    gradient = on_cpu(steps->gradient());
  }
  std::vector<OwnedTensor> state() const {
    std::vector<OwnedTensor> all;
    all.push_back(on_cpu(model->params().values()));
    all.push_back(on_cpu(average->flat()));
    for (const NamedTensor& t : optimizer->state()) all.push_back(on_cpu(t.value));
    return all;
  }

  std::unique_ptr<EmulatorModel> model;
  std::vector<FlatRange> ranges;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<Ema> average;
  std::unique_ptr<Communicator> alone;
  Communicator* comm;
  std::vector<GpuOutcome> outcomes;
  OwnedTensor gradient;
};

/// The worst relative difference of losses, norms, weights, average and moments.
inline double difference(const EmulatorTraining& a, const EmulatorTraining& b) {
  double worst = 0;
  REQUIRE(a.outcomes.size() == b.outcomes.size());
  for (std::size_t i = 0; i < a.outcomes.size(); ++i) {
    const GpuOutcome &one = a.outcomes[i], &other = b.outcomes[i];
    CHECK(one.weight == other.weight);
    CHECK(one.flags == other.flags);
    CHECK(one.failed + other.failed == 0);
    worst = std::max({worst, std::abs(one.loss / other.loss - 1), std::abs(one.norm / other.norm - 1)});
  }
  const std::vector<OwnedTensor> ours = a.state(), theirs = b.state();
  for (std::size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, difference(ours[i], theirs[i]).relative);
  return std::max(worst, difference(a.gradient, b.gradient).relative);
}

inline bool same_bits(const EmulatorTraining& a, const EmulatorTraining& b) {
  bool same = a.outcomes.size() == b.outcomes.size() && same_bits(a.gradient, b.gradient);
  for (std::size_t i = 0; same && i < a.outcomes.size(); ++i)
    same = a.outcomes[i].loss == b.outcomes[i].loss && a.outcomes[i].norm == b.outcomes[i].norm;
  const std::vector<OwnedTensor> ours = a.state(), theirs = b.state();
  for (std::size_t i = 0; same && i < ours.size(); ++i) same = same_bits(ours[i], theirs[i]);
  return same;
}

}  // namespace lockstep::test
