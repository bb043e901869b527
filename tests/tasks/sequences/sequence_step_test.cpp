#include "lockstep/nn/own_tape.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "support/devices.hpp"
#include "support/elements.hpp"
#include "support/sequence_file.hpp"
#include "support/test.hpp"

namespace {

/// A task whose batches have further rows, or none at all, and that counts its passes.
class CountingTask final : public SequenceTask {
 public:
  CountingTask(Options options, SequenceData data, Device device, std::int64_t more)
      : SequenceTask(std::move(options), std::move(data)), more_(more) {
    move_to(device);
  }
  bool draws() const override { return more_ >= 0; }
  RowCounts count_rows(const Shard& shard, std::span<std::int64_t> each) const override {
    RowCounts counts = SequenceTask::count_rows(shard, each);
    if (counts.rows > 0) counts.rows += more_;
    return counts;
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

SequenceData read(const prep::SequenceSet& set) { return read_set(set); }

CountingTask task_of(const Variant& variant, Device device, std::int64_t more) {
  SasRecArch arch;
  arch.slots = 9;
  arch.hidden = 6;
  arch.time_span = 5;
  arch.dropout = 0.3;
  variant.change(arch);
  return {{.arch = arch, .seed = 3}, read(gap_sessions(60)), device, more};
}

/// Histories of 2 to 30 training items. Every seventh user knows all items, or all but one; then negatives take many
/// draws, or the last one.
SequenceData histories(std::int64_t users, std::int64_t items) {
  std::vector<std::vector<std::int32_t>> all;
  std::vector<std::vector<std::int64_t>> times;
  for (std::int64_t u = 0; u < users; ++u) {
    const Philox draws(7, 0, "test.histories", static_cast<std::uint64_t>(u));
    const auto drawn = [&](std::int64_t n, std::int64_t i) {
      return static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(i)));
    };
    const std::int64_t known = items - u % 2, length = u % 7 == 0 ? known : 2 + (u % 5 == 0 ? 0 : drawn(29, 0));
    auto& history = all.emplace_back();
    auto& at = times.emplace_back();
    for (std::int64_t k = 0; k < length + 2; ++k) {  // two are held out
      history.push_back(static_cast<std::int32_t>(1 + (u % 7 == 0 ? k % known : drawn(items, 2 * k + 1))));
      at.push_back((k == 0 ? 0 : at.back()) + drawn(40, 2 * k + 2));
    }
  }
  return read(sequence_set(all, items, times));
}

/// Every array of a batch.
std::vector<std::pair<const char*, Tensor>> arrays(const SequenceBatch& b) {
  return {{"begin", b.begin},
          {"user", b.user},
          {"item", b.item},
          {"slot", b.slot},
          {"time", b.time},
          {"position", b.position},
          {"pos", b.pos},
          {"neg", b.neg},
          {"bias", b.bias},
          {"candidates", b.candidates},
          {"first_query", b.first_query}};
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
/// The largest difference of a loss or gradient, relative to the largest element of its step.
double differ_by(const Result& a, const Result& b) {
  double worst = 0;
  for (std::size_t step = 0; step < a.losses.size(); ++step) {
    double largest = 0, most = 0;
    for (std::size_t i = 0; i < a.gradients[step].size(); ++i) {
      largest = std::max<double>(largest, std::abs(b.gradients[step][i]));
      most = std::max<double>(most, std::abs(a.gradients[step][i] - b.gradients[step][i]));
    }
    worst = std::max({worst, most / largest, std::abs(a.losses[step] / b.losses[step] - 1)});
  }
  return worst;
}
Result steps_of(CountingTask& task, Graphs graphs) {
  const auto alone = make_self_communicator();
  const auto steps = make_sharded_step(*alone, task, {.graphs = graphs});
  Result result;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const StepSums sums = steps->run(batch_at(step));
    result.losses.push_back(sums.loss / sums.weight);
    result.gradients.push_back(elements<float>(steps->gradient()));
  }
  return result;
}

}  // namespace

TEST_SUITE("tasks.sequence_step.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("batches that the GPU makes have the bits of those that the host makes, of every step and rank") {
    const Device gpu{DeviceKind::cuda, 0};
    const SequenceData data = histories(400, 23);
    for (const Variant& variant : variants()) {
      // The others have the batches of these.
      if (std::string(variant.name).ends_with("streams") || std::string(variant.name) == "recompute") continue;
      CAPTURE(std::string(variant.name));
      SasRecArch arch;
      arch.slots = 9;
      arch.hidden = 4;
      variant.change(arch);
      SequenceTask task({.arch = arch, .seed = 3}, data);
      task.move_to(gpu);
      Stream stream(gpu);
      Arena arena(gpu), draws(gpu);
      const auto compare = [&](Shard shard, const OwnedTensor& step_on_gpu) {
        CAPTURE(shard.step);
        CAPTURE(shard.first);
        CAPTURE(shard.count);
        CAPTURE(shard.token_capacity);
        arena.reset(), draws.reset();
        SequenceBatch expected = task.batch(draws.host(), shard);
        task.network().prepare(draws.host(), expected);
        Shard given = shard;
        given.step = -1;  // kernels read the other one
        given.step_on_gpu = reinterpret_cast<const std::uint64_t*>(step_on_gpu->data<std::int64_t>());
        const DrawnShard& drawn = task.draw(draws.host(), given);
        given.drawn = &drawn;
        CHECK(drawn.weight == static_cast<double>(expected.targets));
        Tape tape(stream, arena, DType::f32, Tape::Mode::forward);
        const SequenceBatch found = task.batch(tape, given);
        stream.synchronize();
        CHECK(found.item.device().is_cuda());
        CHECK(found.targets == expected.targets);
        CHECK(found.token_capacity == expected.tokens());
        std::int64_t pairs = 0;
        for (std::int64_t b = 0; b < shard.count; ++b) {
          const auto* begin = expected.begin.data<std::int64_t>();
          pairs += (begin[b + 1] - begin[b]) * (begin[b + 1] - begin[b] + 1) / 2;
        }
        CHECK(found.pairs == pairs);
        const auto is = arrays(found), should_be = arrays(expected);
        for (std::size_t i = 0; i < is.size(); ++i) {
          CAPTURE(std::string(is[i].first));
          CHECK(static_cast<bool>(is[i].second) == static_cast<bool>(should_be[i].second));
          if (is[i].second) CHECK(same_bits(on_cpu(is[i].second), should_be[i].second));
        }
      };
      // Steps in any order, as after a resume; a batch of one sample; shares of one to three ranks; with and without
      // rows behind the samples; more samples than a block has threads.
      for (const std::int64_t step : {0, 1, 7, 3}) {
        const OwnedTensor number = [&] {
          std::int64_t value = step;
          return on_device(Tensor::of(&value, {1}), gpu);
        }();
        const std::int64_t count = step == 3 ? 1 : step == 7 ? 300 : 40;
        const Shard all{.seed = 5, .epoch = step / 3, .step = step, .first = 11 * step, .count = count};
        for (const int ranks : {1, 2, 3})
          for (int rank = 0; rank < (step == 7 ? 1 : ranks); ++rank) {
            Shard part = part_of(all, rank, ranks);
            if (part.count == 0) continue;
            compare(part, number);
            if (arch.padded()) continue;
            part.counts = task.count_rows(part, {});
            part.token_capacity = part.counts.rows + 77;
            compare(part, number);
          }
      }
    }
  }

  TEST_CASE("the host makes the batches whose items it must know") {
    const Device gpu{DeviceKind::cuda, 0};
    const CountingTask task = task_of(variants().front(), gpu, 0);
    Arena draws(gpu);
    OwnTape tape(DType::f32, Tape::Mode::forward, nullptr, gpu);
    Shard shard{.seed = 5, .count = 4};
    const OwnedTensor step(DType::i64, {1}, gpu);
    for (const bool host : {false, true}) {
      shard.step_on_gpu = host ? nullptr : reinterpret_cast<const std::uint64_t*>(step->data<std::int64_t>());
      shard.drawn = &task.draw(draws.host(), shard);
      CHECK(task.batch(tape, shard).item.device().is_cuda() == !host);
    }
  }

  TEST_CASE(
      "batches of other lengths repeat the same graphs, with the bits of calls; rows behind the samples change "
      "rounding alone") {
    const Device gpu{DeviceKind::cuda, 0};
    for (const Variant& variant : variants()) {
      CAPTURE(variant.name);
      CountingTask exact = task_of(variant, gpu, -1), calls = task_of(variant, gpu, 0),
                   graphs = task_of(variant, gpu, 0), roomy = task_of(variant, gpu, 100);
      const Result expected = steps_of(exact, Graphs::off);
      CHECK(expected.losses[0] > 0);
      const Result called = steps_of(calls, Graphs::off);
      CHECK(steps_of(graphs, Graphs::on) == called);
      // On a GPU cuBLASLt may multiply other numbers of rows by another algorithm; the stand-in does not.
      for (const Result& other : {called, steps_of(roomy, Graphs::on)})
        CHECK((test::on_stand_in() ? other == expected : differ_by(other, expected) < 1e-5));
      CHECK(graphs.passes < calls.passes * 3 / 4);
    }
  }
}

TEST_SUITE("tasks.sequence_step") {
  TEST_CASE("on the CPU, rows behind the samples change no bit of loss and gradient") {
    for (const Variant& variant : variants()) {
      CAPTURE(variant.name);
      CountingTask task = task_of(variant, {}, 0);
      const auto gradient = [&](std::int64_t capacity, double& loss) {
        Gradients gradients(task.params());
        OwnTape tape(DType::f32, Tape::Mode::train, &gradients);
        const Shard shard{.seed = 4, .step = 3, .count = 12, .token_capacity = capacity};
        const Var sum = task.loss(tape, shard).sum;
        loss = *sum.value().data<float>();
        tape.backward(sum);
        return elements<float>(gradients.flat());
      };
      double exact = 0, roomy = 0;
      const std::vector<float> expected = gradient(0, exact);
      CHECK(gradient(task.network().arch().padded() ? 0 : 150, roomy) == expected);
      CHECK(roomy == exact);
    }
  }
}
