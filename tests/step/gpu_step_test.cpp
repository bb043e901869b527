#include "lockstep/comm/communicator.hpp"
#include "lockstep/step/graph_replay.hpp"
#include "step/small_gpu_model.hpp"
#include "support/test.hpp"

namespace {

/// Every third batch is smaller.
GlobalBatch batch_at(std::int64_t step) {
  return {.step = step, .first = 10 * step, .count = step % 3 == 2 ? 13 : 20, .micro = 7};
}

/// The weights, optimizer state, average and loss scale after some steps.
struct Result {
  std::vector<float> weights = {}, average = {};
  std::vector<std::vector<float>> state = {};
  double loss_scale = 0;
  std::int64_t steps = 0;
  std::vector<double> losses, norms;
  bool operator==(const Result&) const = default;
};

constexpr double kClip = 0.3, kDecay = 0.9;
constexpr std::int64_t kSteps = 14, kHugeAt = 6;
double rate(std::int64_t step) { return 0.01 * static_cast<double>(1 + step % 4); }

struct Training {
  explicit Training(const OptimizerOptions& options, bool scaled) {
    model.params().at("first.weight").l2 = 0.01;
    if (scaled) model.huge_at = kHugeAt;
    optimizer = make_optimizer(options, model.params(), ranges);
    average.emplace(model.params(), kDecay);
  }
  Result result() const {
    Result all{.weights = elements<float>(model_params()),
               .average = elements<float>(average->flat()),
               .loss_scale = scale.value,
               .steps = optimizer->steps(),
               .losses = losses,
               .norms = norms};
    for (const NamedTensor& t : optimizer->state()) all.state.push_back(elements<float>(t.value));
    return all;
  }
  Tensor model_params() const { return const_cast<SmallModel&>(model).params().values(); }
  SmallModel model;
  std::vector<FlatRange> ranges = trainable_ranges(model.params());
  std::unique_ptr<Optimizer> optimizer;
  std::optional<Ema> average;
  LossScale scale;
  std::vector<double> losses, norms;
};

/// The host decides in each step.
Result by_host(const OptimizerOptions& options, bool scaled) {
  Training t(options, scaled);
  const auto alone = make_self_communicator();
  const auto steps = make_sharded_step(*alone, t.model, {.graphs = Graphs::off});
  for (std::int64_t step = 0; step < kSteps; ++step) {
    GlobalBatch batch = batch_at(step);
    batch.loss_scale = scaled ? t.scale.of_sum(batch.count) : 1;
    const StepSums sums = steps->run(batch);
    const double weight = batch.loss_scale * sums.weight;
    const double loss = sums.loss + sums.weight * add_penalty(t.model.params(), steps->gradient(), weight);
    const double norm = gradient_norm(steps->gradient(), t.ranges) / weight;
    const bool finite = std::isfinite(loss) && std::isfinite(norm);
    t.losses.push_back(finite ? loss : -1);
    t.norms.push_back(finite ? norm : -1);
    if (finite) t.optimizer->step(steps->gradient(), rate(step), clip_scale(norm, kClip) / weight, &*t.average);
    if (scaled) t.scale.update(finite);
  }
  return t.result();
}

/// The GPU decides; the host learns of a step while the next one is under way.
Result by_gpu(const OptimizerOptions& options, bool scaled, Graphs graphs) {
  Training t(options, scaled);
  const GpuUpdate update(t.model.params(), t.optimizer.get(), t.ranges, {.clip_norm = kClip, .scaled = scaled});
  const auto alone = make_self_communicator();
  const auto steps = make_sharded_step(*alone, t.model, {.graphs = graphs}, &update);
  const auto add = [&](const std::optional<EndedStep>& ended) {
    CHECK(ended->step == std::ssize(t.losses));
    const GpuOutcome& found = ended->outcome;
    CHECK((found.skipped != 0) == (scaled && ended->step == kHugeAt));
    CHECK(found.failed == 0);
    t.losses.push_back(found.skipped != 0 ? -1 : found.loss);
    t.norms.push_back(found.skipped != 0 ? -1 : found.norm);
    if (scaled) t.scale.update(found.skipped == 0);
  };
  for (std::int64_t step = 0; step < kSteps; ++step) {
    steps->start(batch_at(step), 0, {.lr = rate(step), .loss_scale = t.scale, .average = &*t.average});
    const std::optional<EndedStep> before = steps->take(false);
    CHECK(before.has_value() == (step > 0 && step != 4 && step != 11));
    if (before) add(before);
    if (step == 3 || step == 10) add(steps->take(true));  // as before an evaluation
  }
  add(steps->take(true));
  CHECK_FALSE(steps->take(true).has_value());
  return t.result();
}

}  // namespace

TEST_SUITE("step.gpu_step.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("a repeated step has the same bits, and its pass is recorded once for each kind of batch and half") {
    SmallModel model, other;
    const auto alone = make_self_communicator();
    const auto calls = make_sharded_step(*alone, model, {.graphs = Graphs::off});
    const auto graphs = make_sharded_step(*alone, other, {.graphs = Graphs::on});
    for (std::int64_t step = 0; step < 24; ++step) {
      CAPTURE(step);
      const GlobalBatch batch = batch_at(step);
      const unsigned flags = step == 6 ? unsigned{kCheckpoint} : 0;
      const StepSums expected = calls->run(batch, flags);
      const StepSums sums = graphs->run(batch, flags);
      CHECK(sums.loss == expected.loss);
      CHECK(sums.weight == static_cast<double>(batch.count));
      CHECK(sums.flags == flags);
      CHECK(elements<float>(graphs->gradient()) == elements<float>(calls->gradient()));
    }
    // Two kinds of batches, of three and of two micro-batches. Each kind runs call by call until its memory has its
    // size, at most twice, and is then captured once for each half of the pinned memory.
    CHECK(other.passes <= (3 + 2) * (2 + 2));
    CHECK(model.passes == 16 * 3 + 8 * 2);
    const int recorded = other.passes;
    for (std::int64_t step = 24; step < 60; ++step) graphs->run(batch_at(step));
    CHECK(other.passes == recorded);
  }

  TEST_CASE("a GPU that decides about its steps has the bits of a host that decides, and skips the same steps") {
    std::vector<OptimizerOptions> all;
    for (const char* name : {"adam", "adamw", "adam_atan2", "sgd"}) all.push_back({.name = name, .weight_decay = 0.01});
    all.push_back({.name = "sgd", .momentum = 0});
    for (const OptimizerOptions& options : all) {
      for (const bool scaled : {false, true}) {
        CAPTURE(options.name);
        CAPTURE(scaled);
        const Result expected = by_host(options, scaled);
        CHECK(expected.steps == kSteps - (scaled ? 1 : 0));
        CHECK(expected.loss_scale == (scaled ? 32768 : 65536));
        CHECK(by_gpu(options, scaled, Graphs::off) == expected);
        CHECK(by_gpu(options, scaled, Graphs::on) == expected);
      }
    }
  }

  TEST_CASE("a step whose loss is not finite names the first bad element, and no later step moves a weight") {
    SmallModel model;
    model.huge_at = 2;
    const std::vector<FlatRange> ranges = trainable_ranges(model.params());
    const auto optimizer = make_optimizer({.name = "adam"}, model.params(), ranges);
    const GpuUpdate update(model.params(), optimizer.get(), ranges, {});
    const auto alone = make_self_communicator();
    const auto steps = make_sharded_step(*alone, model, {}, &update);
    const auto start = [&](std::int64_t step) { steps->start(batch_at(step), 0, {.lr = 0.1}); };
    start(0);
    start(1);
    CHECK(steps->take(false)->outcome.failed == 0);
    CHECK(steps->take(true)->outcome.failed == 0);
    const std::vector<float> before = elements<float>(model.params().values());
    start(2);
    start(3);
    const GpuOutcome failed = steps->take(false)->outcome;
    CHECK(failed.failed == 1);
    REQUIRE(failed.bad_element >= 0);
    CHECK(element_text(model.params(), failed.bad_element, failed.bad_value).starts_with("first.weight["));
    CHECK_FALSE(std::isfinite(failed.bad_value));
    CHECK(steps->take(true)->outcome.failed == 0);
    CHECK(elements<float>(model.params().values()) == before);
  }

  TEST_CASE("the GPU lowers the loss scale itself: a second overflow in a row at a scale of 1 is an error") {
    SmallModel model;
    model.huge_at = 2;
    model.huge_too = 3;
    const std::vector<FlatRange> ranges = trainable_ranges(model.params());
    const auto optimizer = make_optimizer({.name = "adam"}, model.params(), ranges);
    const GpuUpdate update(model.params(), optimizer.get(), ranges, {.scaled = true});
    const auto alone = make_self_communicator();
    const auto steps = make_sharded_step(*alone, model, {}, &update);
    std::vector<GpuOutcome> found;
    for (std::int64_t step = 0; step < 4; ++step) {  // the host learns of the first overflow after the second one began
      steps->start(batch_at(step), 0, {.lr = 0.1, .loss_scale = {.value = 2, .steps = 0}});
      if (const auto before = steps->take(false)) found.push_back(before->outcome);
    }
    found.push_back(steps->take(true)->outcome);
    REQUIRE(found.size() == 4);
    CHECK(found[1].skipped + found[1].failed == 0);
    CHECK(found[2].skipped == 1);
    CHECK(found[3].failed == 1);
  }

  TEST_CASE("steps whose loss waits for the GPU run without graphs, or end if graphs are required") {
    SmallModel model;
    const auto alone = make_self_communicator();
    const auto automatic = make_sharded_step(*alone, model, {.graphs = Graphs::automatic});
    const auto on = make_sharded_step(*alone, model, {.graphs = Graphs::on});
    model.waits = [](std::int64_t) { return true; };
    for (std::int64_t step = 0; step < 30; ++step)
      CHECK(automatic->run(batch_at(step)).weight == static_cast<double>(batch_at(step).count));
    CHECK_THROWS_WITH_AS(
        [&] {
          for (std::int64_t step = 0; step < 30; ++step) on->run(batch_at(step));
        }(),
        doctest::Contains("a step cannot be captured in a graph: waiting for the GPU"), Error);
  }

  TEST_CASE("a step is a graph again after captures that failed, and after its memory moved if other ranks know it") {
    const Device gpu{DeviceKind::cuda, 0};
    const Stream stream(gpu);
    const OwnedTensor result(DType::f32, {3}, gpu);
    int failing = 0;
    std::size_t calls = 0, bytes = 0;
    GraphReplay replay(stream,
                       {.halves = 1, .wait = [&] { stream.synchronize(); }, .agree = [](bool mine) { return mine; }});
    const auto enqueue = [&](const Arena* host) {
      CHECK((host != nullptr) == (bytes > 0));
      if (--failing >= 0) stream.synchronize();
      fill_zero(stream, result);
    };
    const auto run = [&] {
      replay.run(0, {1}, {.call_by_call = [&](bool) { ++calls; }, .enqueue = enqueue, .host_bytes = bytes});
    };
    for (; bytes < 2; ++bytes) {
      failing = 7;
      for (int step = 0; step < 12; ++step) run();
      CHECK(calls == 8 + 7 * bytes);  // the first call is fresh
      replay.memory_may_have_moved();
      replay.memory_moved();
    }
    run();
    replay.memory_moved();
    CHECK_THROWS_WITH_AS(run(), doctest::Contains("the memory of this rank has moved since its capture"), Error);
    CHECK(calls == 15);
    failing = 100;
    for (int step = 0; step < 12; ++step) run();
    CHECK(failing == 92);  // eight in a row are enough
  }

  TEST_CASE("a task that draws while it records runs call by call") {
    SmallModel model;
    model.apart = false;
    const auto alone = make_self_communicator();
    const auto on = make_sharded_step(*alone, model, {.graphs = Graphs::on});
    CHECK_THROWS_WITH_AS(on->run(batch_at(0)), doctest::Contains("differ in shape and cannot be repeated"), Error);
    const auto steps = make_sharded_step(*alone, model, {});
    for (std::int64_t step = 0; step < 6; ++step)
      CHECK(steps->run(batch_at(step)).weight == static_cast<double>(batch_at(step).count));
    CHECK(model.passes == 4 * 3 + 2 * 2);
  }
}
