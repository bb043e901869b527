#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "support/sequence_file.hpp"
#include "support/temp_dir.hpp"

using namespace lockstep;

namespace {

/// A task whose batches have further rows, or none at all, and that counts its passes.
class CountingTask final : public SequenceTask {
 public:
  CountingTask(Options options, SequenceData data, Device device, std::int64_t more)
      : SequenceTask(std::move(options), std::move(data)), more_(more) {
    move_to(device);
  }
  bool draws() const override { return more_ >= 0; }
  std::int64_t rows(const Shard& shard) const override {
    const std::int64_t rows = SequenceTask::rows(shard);
    return rows > 0 ? rows + more_ : 0;
  }
  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    ++passes;
    return SequenceTask::loss(tape, shard);
  }
  mutable int passes = 0;

 private:
  const std::int64_t more_;  ///< -1: steps without rows behind the samples
};

struct Variant {
  const char* name;
  std::function<void(SasRecArch&)> change;
};
std::vector<Variant> variants() {
  using Kind = ItemLoss::Kind;
  const auto timed = [](SasRecArch& a) { a.timed = true, a.norm = SasRecArch::Norm::original; };
  return {
      {"sasrec", [](SasRecArch&) {}},
      {"gbce, two heads", [](SasRecArch& a) { a.loss = {.kind = Kind::gbce, .negatives = 5}, a.heads = 2; }},
      {"softmax", [](SasRecArch& a) { a.loss.kind = Kind::softmax; }},
      {"sampled softmax", [](SasRecArch& a) { a.loss = {.kind = Kind::sampled_softmax, .negatives = 7}; }},
      {"padded", [](SasRecArch& a) { a.pad_mask = SasRecArch::PadMask::none; }},
      {"streams", [](SasRecArch& a) { a.mhc = SasRecArch::Mhc::streams; }},
      {"recompute", [](SasRecArch& a) { a.recompute = true; }},
      {"tisasrec", timed},
      {"tisasrec, masked tables",
       [=](SasRecArch& a) {
         timed(a), a.time_dropout = ops::TimeBuckets::Drop::table, a.norm = SasRecArch::Norm::original;
       }},
      {"tisasrec, padded", [=](SasRecArch& a) { timed(a), a.pad_mask = SasRecArch::PadMask::query; }},
      {"tisasrec, streams", [=](SasRecArch& a) { timed(a), a.mhc = SasRecArch::Mhc::streams; }},
  };
}

CountingTask task_of(const Variant& variant, Device device, std::int64_t more) {
  SasRecArch arch;
  arch.slots = 9;
  arch.hidden = 6;
  arch.time_span = 5;
  arch.dropout = 0.3;
  variant.change(arch);
  const test::TempDir dir;
  static LocalPlacement placement;  // keeps the arrays
  prep::write_sequence_set(dir / "data.h5", test::gap_sessions(60));
  return {{.arch = arch, .seed = 3}, SequenceData::read(dir / "data.h5", placement), device, more};
}

std::vector<float> floats(const Tensor& t) {
  const HostView host(t);
  return {host->data<float>(), host->data<float>() + host->size()};
}

constexpr std::int64_t kSteps = 8;
/// Two micro-batches; the last batch is smaller.
GlobalBatch batch_at(std::int64_t step) {
  return {
      .seed = 4, .epoch = step / 4, .step = step, .first = 6 * (step % 4), .count = step % 4 == 3 ? 5 : 6, .micro = 3};
}

struct Result {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  bool operator==(const Result&) const = default;
};
Result steps_of(CountingTask& task, Graphs graphs) {
  const auto alone = make_self_communicator();
  ShardedStep steps(*alone, task, {.graphs = graphs});
  Result result;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const StepSums sums = steps.run(batch_at(step));
    result.losses.push_back(sums.loss / sums.weight);
    result.gradients.push_back(floats(steps.gradient()));
  }
  return result;
}

}  // namespace

TEST_SUITE("tasks.sequence_step.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE(
      "batches of other lengths repeat the same graphs; neither graphs nor rows behind the samples change a bit") {
    const Device gpu{DeviceKind::cuda, 0};
    for (const Variant& variant : variants()) {
      CAPTURE(variant.name);
      CountingTask exact = task_of(variant, gpu, -1), calls = task_of(variant, gpu, 0),
                   graphs = task_of(variant, gpu, 0), roomy = task_of(variant, gpu, 100);
      const Result expected = steps_of(exact, Graphs::off);
      CHECK(expected.losses[0] > 0);
      CHECK(steps_of(calls, Graphs::off) == expected);
      CHECK(steps_of(graphs, Graphs::on) == expected);
      CHECK(steps_of(roomy, Graphs::on) == expected);
      CHECK(graphs.passes < calls.passes * 3 / 4);
    }
  }
}

TEST_SUITE("tasks.sequence_step") {
  TEST_CASE("on the CPU, rows behind the samples change no bit of loss and gradient") {
    for (const Variant& variant : variants()) {
      CAPTURE(variant.name);
      CountingTask task = task_of(variant, {}, 0);
      const auto gradient = [&](std::int64_t room, double& loss) {
        Stream stream;
        Arena arena;
        Gradients gradients(task.params());
        Tape tape(stream, arena, DType::f32, Tape::Mode::train, &gradients);
        const Shard shard{.seed = 4, .step = 3, .count = 12, .room = room};
        const Var sum = task.loss(tape, shard).sum;
        loss = *sum.value().data<float>();
        tape.backward(sum);
        return floats(gradients.flat());
      };
      double exact = 0, roomy = 0;
      const std::vector<float> expected = gradient(0, exact);
      CHECK(gradient(task.network().arch().padded() ? 0 : 150, roomy) == expected);
      CHECK(roomy == exact);
    }
  }
}
