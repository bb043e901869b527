#include "lockstep/train/evaluator.hpp"
#include "support/elements.hpp"
#include "support/mpi_gpus.hpp"
#include "support/random_puzzles.hpp"
#include "support/test.hpp"
#include "tasks/hrm/hrm_program.hpp"

namespace {

HrmTask::Options tiny(DType dtype) {
  HrmTask::Options o;
  o.arch = {.hidden = 12, .heads = 2, .expansion = 1, .h_layers = 1, .l_layers = 1, .puzzle_ndim = 20};
  o.loss = {.halt_max_steps = 4, .explore = 0.5};
  o.visits = 3;
  o.dtype = dtype;
  o.seed = 4;
  return o;
}

RunConfig config(bool reproducible, std::int64_t accumulate = 1, const char* graphs = "auto") {
  RunConfig c;
  c.train.epochs = 99;  // of 7 steps each
  c.run.graphs = graphs;
  c.batch = {.size = 12 / accumulate, .accumulate = accumulate};
  c.run.reproducible = reproducible;
  c.run.seed = 9;
  c.dist.shards = 4;
  c.dist.bucket_bytes = 1 << 12;
  c.dist.compress = "none";
  c.optim.name = "adam_atan2";
  c.optim.lr = 1e-2;
  c.optim.weight_decay = 0.1;
  return c;
}

/// Puzzles of 3 x 3 cells, each in 8 rotated and mirrored variants, which training draws.
PuzzleData drawn_puzzles() {
  PuzzleData data = random_puzzles(30);
  data.online = {PuzzleTask::maze, data.seq_len, 5};
  data.variants = 8;
  return data;
}

/// A task on a device.
struct Placed : HrmTask {
  Placed(Options options, PuzzleData data, Device device) : HrmTask(std::move(options), std::move(data)) {
    move_to(device);
  }
};

/// A task and its program.
struct Run {
  Run(World& world, RunConfig settings, int threads, DType dtype = DType::f32, Device device = {})
      : config(std::move(settings)),
        model(tiny(dtype), drawn_puzzles(), device),
        program(world, config, model, threads) {}
  void steps(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (state.position == program.epoch().positions) state.position = 0, ++state.epoch;
      const StepResult done = program.step(state, 1e-2, nullptr, 0);
      ++state.step, state.position += done.advance;
      if (done.outcome) outcome = *done.outcome;
    }
    if (const std::optional<StepOutcome> last = program.settle(UpTo::weights)) outcome = *last;
  }
  /// Copies all checkpointed state from another run.
  void continue_from(Run& other) {
    const auto copy = [](const Tensor& to, const Tensor& from) {
      const HostView target(to, HostView::Access::write), source(from);
      std::memcpy(target->raw(), source->raw(), to.size_bytes());
    };
    copy(model.params().values(), other.model.params().values());
    const auto mine = program.state().vectors, theirs = other.program.state().vectors;
    for (std::size_t i = 0; i < mine.size(); ++i) copy(mine[i].value, theirs[i].value);
    Optimizer &a = *program.state().optimizers[0].optimizer, &b = *other.program.state().optimizers[0].optimizer;
    for (std::size_t i = 0; i < a.state().size(); ++i) copy(a.state()[i].value, b.state()[i].value);
    a.set_steps(b.steps());
    state = other.state;
    program.resumed();
  }
  bool same_bits(Run& other) {
    bool same = model.params().hash() == other.model.params().hash();
    const auto mine = program.state().vectors, theirs = other.program.state().vectors;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const HostView a(mine[i].value), b(theirs[i].value);
      same &= std::memcmp(a->raw(), b->raw(), a->size_bytes()) == 0;
    }
    return same;
  }
  RunConfig config;
  Placed model;
  HrmProgram program;
  TrainState state;
  StepOutcome outcome;  ///< of the last step
};

double difference(Run& a, Run& b) {
  double worst = 0;
  const HostView x(a.model.params().values()), y(b.model.params().values());
  for (std::int64_t i = 0; i < x->size(); ++i)
    worst = std::max(worst, std::abs(x->data<double>()[i] - y->data<double>()[i]));
  return worst;
}

}  // namespace

TEST_SUITE("tasks.hrm_program") {
  TEST_CASE("reproducible: weights, puzzle table and carried states have the same bits for any ranks and threads") {
    Run first(test_world(), config(true), 1);
    first.steps(9);
    for (const int threads : {2, 3}) {
      Run other(test_world(), config(true), threads);
      other.steps(9);
      CHECK(other.same_bits(first));
    }
    const std::uint64_t hash = first.model.params().hash();
    CHECK(test_world().communicator().all_reduced(hash, ReduceOp::min, "test") == hash);
    CHECK(test_world().communicator().all_reduced(hash, ReduceOp::max, "test") == hash);
  }

  TEST_CASE("in double, ranks and micro-batches change no more than rounding") {
    Run whole(test_world(), config(true), 1, DType::f64), fast(test_world(), config(false), 2, DType::f64),
        pieces(test_world(), config(false, 3), 1, DType::f64);
    for (Run* run : {&whole, &fast, &pieces}) run->steps(9);
    CHECK(difference(whole, fast) < 1e-10);
    CHECK(difference(whole, pieces) < 1e-10);
  }

  TEST_CASE("resumed in the middle of a sequence's segments, a run ends with the bits of the uninterrupted one") {
    Run whole(test_world(), config(true), 2), before(test_world(), config(true), 1),
        after(test_world(), config(true), 2);
    whole.steps(11);
    before.steps(5);
    const std::span<const std::int32_t> steps = before.model.slots().steps->span<const std::int32_t>(),
                                        halted = before.model.slots().halted->span<const std::int32_t>();
    bool in_the_middle = false;
    for (std::size_t i = 0; i < steps.size(); ++i) in_the_middle |= steps[i] > 0 && !halted[i];
    CHECK(in_the_middle);
    after.continue_from(before);
    after.steps(6);
    CHECK(after.same_bits(whole));
  }

  TEST_CASE("carried data that do not fit the data set are refused") {
    Run run(test_world(), config(true), 1);
    run.model.slots().inputs->data<std::int32_t>()[2 * 9 + 1] = 6;
    CHECK_THROWS_WITH_AS(run.program.resumed(), doctest::Contains("carried inputs of slot 2: 6 is out of range"),
                         Error);
  }

  TEST_CASE("GPU: the carry in device memory has the same bits with direct launches, graphs and after resuming" *
            doctest::skip(gpu_count() == 0)) {
    if (!gpu_for_each_rank()) return skip("graphs need a GPU for each rank");
    const Device gpu = own_gpu();
    for (const std::int64_t accumulate : {1, 3}) {
      CAPTURE(accumulate);
      Run calls(test_world(), config(false, accumulate, "off"), 1, DType::f32, gpu),
          graphs(test_world(), config(false, accumulate, "on"), 1, DType::f32, gpu),
          before(test_world(), config(false, accumulate, "on"), 1, DType::f32, gpu),
          after(test_world(), config(false, accumulate, "on"), 1, DType::f32, gpu);
      for (Run* run : {&calls, &graphs}) run->steps(10);
      CHECK(graphs.same_bits(calls));
      before.steps(5);
      after.continue_from(before);
      after.steps(5);
      CHECK(after.same_bits(calls));
    }
  }

  TEST_CASE("GPU: sequences halt as on the CPU" * doctest::skip(gpu_count() == 0)) {
    Run here(test_world(), config(false), 1, DType::f64), there(test_world(), config(false), 1, DType::f64, own_gpu());
    for (Run* run : {&here, &there}) run->steps(8);
    CHECK(difference(here, there) < 1e-9);
    const auto carried = [](Run& run, std::size_t i) {
      return elements<std::int32_t>(run.program.state().vectors[i].value);
    };
    for (std::size_t i = 2; i < here.program.state().vectors.size(); ++i) CHECK(carried(here, i) == carried(there, i));
  }

  TEST_CASE("GPU: a step that overflows in fp16 changes no weights, but counts as a segment" *
            doctest::skip(gpu_count() == 0)) {
    if (!gpu_for_each_rank()) return skip("graphs need a GPU for each rank");
    std::vector<std::unique_ptr<Run>> runs;
    for (const char* graphs : {"off", "on"}) {
      RunConfig settings = config(false, 1, graphs);
      settings.run.precision = "fp16";
      Run& run = *runs.emplace_back(std::make_unique<Run>(test_world(), std::move(settings), 1, DType::f32, own_gpu()));
      run.model.params().store_as(DType::f16);
      run.steps(4);
      const std::uint64_t hash = run.model.params().hash();
      const auto carried_steps = [&] { return elements<std::int32_t>(run.model.slots().steps); };
      const std::vector<std::int32_t> before = carried_steps();
      run.state.loss_scale.value = 0x1p60;  // invalidates the prepared step
      run.steps(1);
      CHECK(run.outcome.skipped);
      CHECK(run.model.params().hash() == hash);
      CHECK(carried_steps() != before);
      run.state.loss_scale.value = 1024;
      run.steps(5);
      CHECK_FALSE(run.outcome.skipped);
      CHECK(run.model.params().hash() != hash);
    }
    CHECK(runs[0]->same_bits(*runs[1]));
  }

  TEST_CASE("rows of the puzzle table that no slot used keep their bits") {
    Run run(test_world(), config(true), 1);
    const Tensor table = run.model.network().puzzle_table()->value;
    run.steps(1);
    std::vector<bool> used(to_size(table.rows()), false);
    for (const std::int32_t id : run.model.slots().identifiers->span<const std::int32_t>()) used[to_size(id)] = true;
    for (std::int64_t row = 0; row < table.rows(); ++row) {
      double most = 0;
      for (std::int64_t c = 0; c < table.columns(); ++c)
        most = std::max(most, std::abs(static_cast<double>(table.data<float>()[row * table.columns() + c])));
      CHECK((most > 0) == used[to_size(row)]);
    }
  }

  TEST_CASE("an evaluation has the same bits for any block size, and training improves it") {
    Run run(test_world(), config(true), 2);
    const auto exact = [&] { return evaluate(test_world().communicator(), run.model, Split::test, 2); };
    const std::vector<Metric> before = exact();
    run.steps(60);
    const std::vector<Metric> after = exact();
    CHECK(before[0].name == "exact_accuracy");
    CHECK(after[1].value < 0.8 * before[1].value);  // the loss
  }
}
