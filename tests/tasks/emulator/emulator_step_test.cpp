#include "emulator_training.hpp"
#include "lockstep/base/log.hpp"
#include "ops/activations.hpp"
#include "support/test.hpp"

// The emulator's step on a GPU as one kernel, against separate kernels and the CPU.

using Network = EmulatorNetwork;
using Training = EmulatorTraining;

namespace {

constexpr Device kGpu = {DeviceKind::cuda, 0};

/// The lines that a step logs.
std::string logged(const auto& f) {
  std::string lines;
  const auto remove = log::add_sink([&](LogLevel, std::string_view line) { lines += std::string(line) + "\n"; });
  f();
  remove();
  return lines;
}

}  // namespace

TEST_SUITE("tasks.emulator_step.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("one kernel agrees with separate kernels, for each activation and loss, with clipping and an average") {
    for (const ops::Activation activation : kSlopes)
      for (const auto loss : {ops::Regression::mse, ops::Regression::mae, ops::Regression::huber}) {
        CAPTURE(name(activation));
        CAPTURE(name(loss));
        const Network network = {.activation = activation, .loss = loss};
        Training one(network, true), many(network, false);
        CHECK(logged([&] { one.train({20, 20, 1, 9}, 0.2); }).find("as one kernel") != std::string::npos);
        CHECK(logged([&] { many.train({20, 20, 1, 9}, 0.2); }).find("one kernel") == std::string::npos);
        CHECK(difference(one, many) < 1e-11);  // Adam divides gradients by their size: 1e4 times their error
      }
  }

  TEST_CASE("one kernel agrees with separate kernels, for odd widths and any number of layers and samples") {
    const std::vector<std::pair<Network, std::vector<std::int64_t>>> cases = {
        {{.in = 1, .out = 1, .hidden = 1, .layers = 1}, {1, 8, 7, 100}},
        {{.in = 14, .out = 1, .hidden = 64, .layers = 3}, {60, 33}},
        {{.in = 5, .out = 9, .hidden = 33, .layers = 4}, {17, 130}},
        {{.in = 3, .out = 2, .hidden = 2, .layers = 8}, {40, 40, 40}},
        // Parts of one group of 8 or 32 rows, then of several, the last one smaller.
        {{.in = 3, .out = 2, .hidden = 5, .layers = 2, .rows = 12000}, {1024, 1025, 4097, 8250}},
        {{.in = 4, .out = 3, .hidden = 6, .layers = 2, .bootstrap = true}, {50, 50, 50}},
        // 8 sums of squares fill their allocation: the stand-in has NaN behind them.
        {{.in = 4, .out = 2, .hidden = 32, .layers = 1}, {30, 25}},
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      CAPTURE(i);
      Network network = cases[i].first;
      Training one(network, true), many(network, false);
      CHECK(logged([&] { one.train(cases[i].second, 0); }).find("as one kernel") != std::string::npos);
      many.train(cases[i].second, 0);
      CHECK(difference(one, many) < 1e-9);  // biases with gradients near 0, which Adam divides by their size
      network.dtype = DType::f32;
      Training single(network, true), reference(network, false);
      single.train({cases[i].second.front()}, 0);
      reference.train({cases[i].second.front()}, 0);
      CHECK(difference(single.gradient, reference.gradient) < 5e-6);  // the tolerance of verify
    }
  }

  TEST_CASE("a kernel's steps repeat bit by bit, in graphs and not, in any order of blocks and threads") {
    for (const std::int64_t count : {100, 4200}) {  // without and with several groups of rows in a part
      CAPTURE(count);
      const Network network = {.hidden = 9, .rows = 6000};
      const std::vector<std::int64_t> counts(6, count);
      Training first(network, true), second(network, true), third(network, true);
      first.train(counts, 0.1, Graphs::off);
      second.train(counts, 0.1, Graphs::on);
      const LastFirst order;
      third.train(counts, 0.1, Graphs::off);
      CHECK(same_bits(first, second));
      CHECK(same_bits(first, third));
    }
  }

  TEST_CASE("after the norm, clipping, update and average of a kernel have the bits of GpuUpdate") {
    // From the same gradient: the step of one kernel without an update, then the rest call by call.
    const Network network = {.hidden = 40, .layers = 3, .dtype = DType::f32};
    Training one(network, true), parts(network, true);
    one.train({50}, 0.05);
    const auto step = make_sharded_step(*parts.comm, *parts.model, {});
    const StepSums sums = step->run({.seed = 5, .epoch = 1, .count = 50}, kCheckpoint);
    CHECK(sums.loss == one.outcomes[0].loss);
    CHECK(sums.flags == unsigned{kCheckpoint});
    const double norm = gradient_norm(step->gradient(), parts.ranges) / sums.weight;
    const double found = one.outcomes[0].norm;
    parts.optimizer->step(step->gradient(), 0.01, clip_scale(found, 0.05) / sums.weight, &*parts.average);
    CHECK(std::abs(norm / found - 1) < 1e-14);  // 3562 squares, added in f64 in two orders
    CHECK(found > 0.05);
    parts.outcomes = one.outcomes;
    parts.gradient = on_cpu(step->gradient());
    CHECK(same_bits(one, parts));
  }

  TEST_CASE("the gradient of a kernel agrees with differences of its loss") {
    for (const auto activation : {ops::Activation::gelu, ops::Activation::tanh, ops::Activation::silu}) {
      CAPTURE(name(activation));
      const Network network = {.in = 3, .out = 2, .hidden = 5, .layers = 2, .activation = activation};
      Training t(network, true);
      const auto step = make_sharded_step(*t.comm, *t.model, {});
      const GlobalBatch batch = {.seed = 2, .count = 19};
      const auto loss = [&] { return step->run(batch).loss; };
      loss();
      const OwnedTensor gradient = on_cpu(step->gradient());
      const Tensor& values = t.model->params().values();
      double worst = 0, largest = 0;
      for (const Param& p : t.model->params().all())
        for (std::int64_t i = p.offset; i < p.offset + p.shape.size(); i += 3) {
          const auto moved = [&](double by) {
            {
              const HostView view(values, HostView::Access::write);
              view->data<double>()[i] += by;
            }
            const double found = loss();
            const HostView view(values, HostView::Access::write);
            view->data<double>()[i] -= by;
            return found;
          };
          constexpr double kStep = 1e-3;
          const double slope =
              (8 * (moved(kStep) - moved(-kStep)) - (moved(2 * kStep) - moved(-2 * kStep))) / (12 * kStep);
          worst = std::max(worst, std::abs(slope - gradient->data<double>()[i]));
          largest = std::max(largest, std::abs(slope));
        }
      CHECK(worst < 1e-8 * largest);
    }
  }

  TEST_CASE("a step that is not finite names its first bad element and moves nothing") {
    const Network network = {.dtype = DType::f32};
    Training t(network, true);
    {
      const HostView view(t.model->params().values(), HostView::Access::write);
      view->data<float>()[t.model->emulator().weight(1).offset] = 1e30f;
      view->data<float>()[t.model->emulator().weight(2).offset] = 1e30f;
    }
    const OwnedTensor before = on_cpu(t.model->params().values());
    t.train({20, 20}, 0);
    CHECK(t.outcomes[0].failed == 1);
    REQUIRE(t.outcomes[0].bad_element >= 0);
    CHECK_FALSE(std::isfinite(t.outcomes[0].bad_value));
    CHECK(same_bits(t.state()[0], before));
  }

  TEST_CASE("samples that a kernel fetches have the bits of the CPU's") {
    // Of one row per step, without hidden units that round: the loss of a linear map of the inputs.
    for (const bool bootstrap : {false, true}) {
      CAPTURE(bootstrap);
      const Network network = {.hidden = 1, .layers = 1, .activation = ops::Activation::relu, .bootstrap = bootstrap};
      Training gpu(network, false), cpu(network, false, {});
      Stream stream(kGpu);
      for (const std::int64_t first : {0, 17}) {
        constexpr std::int64_t kCount = 50;
        const Shard shard = {.seed = 4, .epoch = 2, .first = first, .count = kCount};
        Arena arena(kGpu), host;
        const DrawnShard drawn = gpu.model->draw(arena.host(), shard);
        REQUIRE(drawn.rows != nullptr);
        CHECK(drawn.weight == kCount);
        const OwnedTensor z(DType::f64, {kCount, 4}, kGpu), t(DType::f64, {kCount, 2}, kGpu);
        ops::take_samples(stream, z, t, gpu.model->EmulatorTask::dense_network()->table, drawn.rows);
        stream.synchronize();
        const EmulatorData& data = cpu.model->data();
        const OwnedTensor z_here = on_cpu(z), t_here = on_cpu(t);
        for (std::int64_t i = 0; i < kCount; ++i) {
          const std::int64_t row = data.rows_of(Split::train)[to_size((*drawn.rows)(i))];
          for (std::int64_t c = 0; c < 4; ++c)
            CHECK(z_here->data<double>()[i * 4 + c] ==
                  (static_cast<double>(data.x.row<float>(0)[row * 4 + c]) - data.moments.input_mean[to_size(c)]) /
                      data.moments.input_std[to_size(c)]);
          for (std::int64_t c = 0; c < 2; ++c)
            CHECK(t_here->data<double>()[i * 2 + c] ==
                  (static_cast<double>(data.y.row<float>(0)[row * 2 + c]) - data.moments.output_mean[to_size(c)]) /
                      data.moments.output_std[to_size(c)]);
        }
      }
    }
  }

  TEST_CASE("networks that one kernel cannot train are trained by separate kernels, and the log says why once") {
    const auto why = [](const Network& network, const OptimizerOptions& optimizer) {
      Training t(network, true);
      t.optimizer = make_optimizer(optimizer, t.model->params(), t.ranges);
      std::string lines = logged([&] { t.train({20, 20, 20}, 0); });
      CHECK(std::isfinite(t.outcomes.back().loss));
      const std::string start = "the GPU takes each step as separate kernels: one kernel cannot train this network: ";
      REQUIRE(lines.find(start) != std::string::npos);
      CHECK(lines.find(start) == lines.rfind(start));
      return lines;
    };
    const auto has = [](const std::string& text, const char* part) {
      CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    };
    has(why({.layers = 9}, {}), "it has 10 layers, more than 9");
    has(why({}, {.name = "sgd"}), "the optimizer is sgd");
    has(why({.hidden = 200}, {}), "of the shared memory of a block of this GPU");
  }

  TEST_CASE("with the least shared memory that it needs a kernel agrees with one that has more" *
            doctest::skip(!test::on_stand_in())) {
    constexpr const char* kVariable = "LOCKSTEP_CUDA_HOST_SHARED";  // a GPU ignores it
    if (std::getenv(kVariable) != nullptr) return;
    const Network network = {.in = 14, .out = 1, .hidden = 40, .layers = 2, .rows = 4000, .dtype = DType::f32};
    const std::vector<std::int64_t> counts = {3000, 100};
    Training whole(network, true);
    whole.train(counts, 0);
    for (int kib = 4;; ++kib) {
      setenv(kVariable, std::to_string(kib).c_str(), 1);
      Training little(network, true);
      const std::string lines = logged([&] { little.train(counts, 0); });
      unsetenv(kVariable);
      const bool fits = lines.find("as one kernel") != std::string::npos;
      CHECK(difference(little.gradient, whole.gradient) < 5e-6);
      if (!fits) continue;
      CHECK(kib > 12);  // the weights take 9 KiB, eight rows 4
      break;
    }
  }
}
