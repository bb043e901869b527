#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <set>

#include "cuda_host/sanitizer.hpp"
#include "fit/reservoir.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/lockstep_train.h"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "support/device_array.hpp"
#include "support/emulator_file.hpp"
#include "support/mpi_gpus.hpp"
#include "support/temp_dir.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kIn = 4, kOut = 2;
const std::string kFast =
    "model.hidden_size = 16\nmodel.hidden_layers = 2\noptim.name = adamw\noptim.lr = 1e-3\noptim.clip_norm = 0.5\n"
    "optim.ema = 0.9\nrun.seed = 3\ndist.timeout = 60\n";
const std::string kConfig = kFast + "run.reproducible = true\n";

/// A session that the test closes. All calls are expected to succeed unless the test says otherwise.
struct Opened {
  explicit Opened(const std::string& config = kConfig, MPI_Comm comm = MPI_COMM_WORLD) {
    const int code = lsfit_open(comm, config.c_str(), kIn, kOut, nullptr, nullptr, &session);
    INFO(std::string(lsem_last_error()));
    CHECK(code == LSEM_OK);
  }
  Opened(const Opened&) = delete;
  ~Opened() { lsfit_close(session); }
  void ok(int code) const {
    INFO(std::string(lsfit_error(session)));
    CHECK(code == LSEM_OK);
  }
  /// A call that fails with this code and a message that holds this text.
  void fails(int code, int expected, const std::string& text) const {
    CHECK(code == expected);
    check_mentions(lsfit_error(session), text);
  }
  /// Passes columns, which are the rows of x and y.
  int observe(long n, const float* x, const float* y, const float* weights = nullptr, const long* ids = nullptr) const {
    return lsfit_observe_f32(session, n, x, kIn, y, kOut, weights, ids);
  }
  double step() const {
    double loss = -1;
    ok(lsfit_step(session, &loss));
    return loss;
  }
  std::vector<char> state() const {
    std::size_t bytes = 0;
    ok(lsfit_state_size(session, &bytes));
    std::vector<char> buffer(bytes);
    ok(lsfit_state_get(session, buffer.data(), buffer.size()));
    return buffer;
  }
  lsfit_session* session = nullptr;
};

/// The columns [first, end) of a batch of `count` that a rank observes. `uneven`: rank 0 has none if there are others.
std::pair<std::int64_t, std::int64_t> own_columns(std::int64_t count, bool uneven) {
  const std::int64_t r = test_world().rank(), n = test_world().size();
  if (uneven && n > 1)
    return r == 0 ? std::pair{count * 0, count * 0}
                  : std::pair{count * (r - 1) * (r - 1) / ((n - 1) * (n - 1)), count * r * r / ((n - 1) * (n - 1))};
  return {count * r / n, count * (r + 1) / n};
}

/// The rows of a data set as columns of the session, in two calls.
void observe(const Opened& opened, const EmulatorContents& rows, std::int64_t first, std::int64_t count, bool uneven) {
  const auto [begin, end] = own_columns(count, uneven);
  const std::int64_t half = (end - begin) / 2;
  for (const auto& [from, to] : {std::pair{begin, begin + half}, std::pair{begin + half, end}})
    opened.ok(opened.observe(to - from, rows.x.data() + (first + from) * kIn, rows.y.data() + (first + from) * kOut));
}

void set_moments(const Opened& opened, const Moments& m) {
  opened.ok(lsfit_set_moments(opened.session, m.input_mean.data(), m.input_std.data(), m.output_mean.data(),
                              m.output_std.data()));
}

/// Trains on the same rows in a session and by the trainer's step, on a device, and compares weights and average.
void train_beside_trainer(Device device, const std::string& config) {
  const std::int64_t batch = 70, steps = 6;
  const EmulatorContents rows = emulator_contents(1000, kIn, kOut);
  EmulatorData data = read_data(rows);
  EmulatorTask::Options options;
  options.arch = {.hidden = 16, .layers = 2};
  options.seed = 3;
  EmulatorTask task(options, data);
  task.move_to(device);
  const bool reproducible = contains(config, "run.reproducible = true");
  const auto alone = make_self_communicator();
  const std::vector<FlatRange> ranges = trainable_ranges(task.params());
  const auto optimizer = make_optimizer({.name = "adamw", .weight_decay = 1e-4}, task.params(), ranges);
  std::optional<GpuUpdate> update;
  if (device.is_cuda()) update.emplace(task.params(), &*optimizer, ranges, GpuUpdate::Options{.clip_norm = 0.5});
  const auto step = make_sharded_step(
      reproducible ? *alone : test_world().communicator(), task,
      {.reproducible = reproducible, .backend = contains(config, "mpi") ? Backend::mpi : Backend::automatic},
      update ? &*update : nullptr);
  Ema average(task.params(), 0.9);

  const Opened opened(config);
  set_moments(opened, rows.moments);
  EmulatorContents order = rows;
  for (std::int64_t s = 0; s < steps; ++s) {
    const GlobalBatch now{.seed = 3, .step = s, .first = s * batch, .count = batch};
    std::vector<std::int64_t> numbers;
    task.reads({.seed = 3, .first = now.first, .count = batch}, numbers);
    for (std::int64_t i = 0; i < batch; ++i) {
      std::copy_n(rows.x.data() + numbers[static_cast<std::size_t>(i)] * kIn, kIn, order.x.data() + i * kIn);
      std::copy_n(rows.y.data() + numbers[static_cast<std::size_t>(i)] * kOut, kOut, order.y.data() + i * kOut);
    }
    double loss = 0;
    if (step->stays_on_gpu()) {
      step->start(now, 0, {.lr = 1e-3, .average = &average});
      const GpuOutcome outcome = step->take(true)->outcome;
      loss = outcome.loss / outcome.weight;
    } else {
      const StepSums sums = step->run(now);
      const double norm = gradient_norm(step->gradient(), ranges) / sums.weight;
      optimizer->step(step->gradient(), 1e-3, clip_scale(norm, 0.5) / sums.weight, &average);
      loss = sums.loss / sums.weight;
    }
    const bool uneven = s % 2 == 0;
    if (device.is_cuda()) {
      const auto [begin, end] = own_columns(batch, uneven);
      const DeviceArray<float> x(order.x, device.index), y(order.y, device.index);
      opened.ok(lsfit_gpu_observe_f32(opened.session, end - begin, x.data() + begin * kIn, kIn, 1,
                                      y.data() + begin * kOut, kOut, 1, nullptr, nullptr, nullptr));
    } else {
      observe(opened, order, 0, batch, uneven);
    }
    CHECK(opened.step() == loss);
  }
  CHECK(lsfit_steps(opened.session) == steps);

  const TempDir dir;
  const std::filesystem::path file =
      test_world().communicator().broadcast_text((dir.path() / "fit.h5").string(), 0, "path");
  opened.ok(lsfit_save(opened.session, file.c_str()));
  test_world().communicator().barrier("saved");
  EmulatorTask saved(options, data);
  const CheckpointReader reader(file);
  reader.load_weights(saved.params());
  CHECK(saved.params().hash() == task.params().hash());
  Ema their(saved.params(), 0.9);
  reader.load_ema(their);
  CHECK(their.hash() == average.hash());
  test_world().communicator().barrier("read");
}

bool same_on_all(const std::vector<char>& bytes) {
  const std::uint64_t hash = hash64(bytes.data(), bytes.size());
  Communicator& all = test_world().communicator();
  return all.all_reduced(hash, ReduceOp::max, "hash") == all.all_reduced(hash, ReduceOp::min, "hash");
}

}  // namespace

TEST_SUITE("fit.session") {
  TEST_CASE("rows in the order of a training give its weights in every bit") { train_beside_trainer({}, kConfig); }

  TEST_CASE("rows in the memory of a GPU in the order of a training give its weights in every bit") {
    const Device gpu = own_gpu();
    if (gpu_count() == 0 || !gpu_for_each_rank()) return;
    const CurrentGpu current(gpu);
    train_beside_trainer(gpu, kConfig + "run.device = cuda\n");
    train_beside_trainer(gpu, kFast + "run.device = cuda\n");
    train_beside_trainer(gpu, kFast + "run.device = cuda\nrun.backend = mpi\n");

    const auto alone = make_self_communicator();
    fit::Columns columns{kIn, kOut}, moved{kIn, kOut};
    columns.weights = {1, 2};
    columns.x.assign(2 * kIn, 0);
    columns.y.assign(2 * kOut, 0);
    columns.to_gpu(gpu);
    columns.x.clear();  // as if they had been observed there
    fit::move_columns(*alone, gpu, columns, moved, {{0, 0, 2}}, {{.count = 2}});
    CHECK(moved.on_gpu);
    CHECK(moved.x.empty());
    fit::move_columns(*alone, gpu, moved, columns, {{0, 1, 1}, {0, 0, 1}}, {{.count = 2}});
    CHECK(!columns.on_gpu);
    CHECK(columns.x.size() == 2 * kIn);
    CHECK(columns.weights == std::vector<float>{2, 1});
  }

  TEST_CASE("a state continues with the same bits, however the columns are divided") {
    const EmulatorContents rows = emulator_contents(600, kIn, kOut);
    std::vector<char> whole, split;
    for (const bool uneven : {false, true}) {
      const Opened opened;
      for (std::int64_t s = 0; s < 3; ++s) observe(opened, rows, 0, 100 + 37 * s, uneven), opened.step();
      std::vector<char> state = opened.state();
      CHECK(same_on_all(state));
      const Opened other;
      other.ok(lsfit_state_set(other.session, state.data(), state.size()));
      CHECK(lsfit_steps(other.session) == 3);
      for (std::int64_t s = 3; s < 5; ++s) {
        observe(opened, rows, 50, 64, uneven), opened.step();
        observe(other, rows, 50, 64, !uneven), other.step();
      }
      CHECK(opened.state() == other.state());
      (uneven ? split : whole) = other.state();
    }
    CHECK(whole == split);  // also the moments, which are those of the first step

    const Opened late;  // a state whose length was asked for before another step
    std::size_t bytes = 0;
    for (int i = 0; i < 2; ++i) {
      observe(late, rows, 0, 100, false), late.step();
      if (i == 0) late.ok(lsfit_state_size(late.session, &bytes));
    }
    std::vector<char> now(bytes);
    CHECK(lsfit_state_get(late.session, now.data(), bytes - 1) == LSEM_ERR_BUFFER);
    late.ok(lsfit_state_get(late.session, now.data(), bytes));
    CHECK(now == late.state());

    const Opened other("model.hidden_size = 8\nrun.reproducible = true\n");
    other.fails(lsfit_state_set(other.session, whole.data(), whole.size()), LSEM_ERR_ARGUMENT, "another network");
    CHECK(lsfit_state_set(other.session, whole.data(), whole.size() - 1) == LSEM_ERR_DAMAGED);
    whole[whole.size() / 2] ^= 1;
    CHECK(lsfit_state_set(other.session, whole.data(), whole.size()) == LSEM_ERR_DAMAGED);
    whole[0] ^= 1;
    CHECK(lsfit_state_set(other.session, whole.data(), whole.size()) == LSEM_ERR_ARGUMENT);
  }

  TEST_CASE("columns with identities train alike on any ranks, with past columns and after a restart") {
    const EmulatorContents rows = emulator_contents(600, kIn, kOut);
    /// Passes columns of a step in an order and from ranks that depend on `turn`.
    const auto observe_scattered = [&](const Opened& opened, std::int64_t first, std::int64_t count, std::int64_t turn,
                                       bool all_here) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = first + (i * 7 + turn) % count;
        const long id = 1000 - row;
        const float weight = 1 + static_cast<float>(row % 3);
        if (all_here || (row * row + turn) % test_world().size() == test_world().rank())
          opened.ok(opened.observe(1, &rows.x[to_size(row * kIn)], &rows.y[to_size(row * kOut)], &weight, &id));
      }
    };
    std::vector<std::vector<char>> states;
    for (const char* reservoir : {"", "reservoir.columns = 40\nreservoir.batch = 25\n", "reservoir.columns = 1000\n"}) {
      const std::string config = kConfig + reservoir;
      const Opened whole(config), alone(config, MPI_COMM_SELF), again(config);
      const auto step = [&](std::int64_t s, const Opened& one, const Opened& other, bool other_is_alone) {
        observe_scattered(one, 40 * s, 60, s, false);
        observe_scattered(other, 40 * s, 60, 3 * s + 1, other_is_alone);
        CHECK(one.step() == other.step());
      };
      for (std::int64_t s = 0; s < 6; ++s) step(s, whole, alone, true);
      std::vector<char> state = whole.state();
      CHECK(state == alone.state());
      again.ok(lsfit_state_set(again.session, state.data(), state.size()));
      const Opened continued(config, MPI_COMM_SELF);
      continued.ok(lsfit_state_set(continued.session, state.data(), state.size()));
      for (std::int64_t s = 6; s < 9; ++s) {
        step(s, whole, continued, true);
        observe_scattered(again, 40 * s, 60, s + 2, false);
        again.step();
      }
      if (contains(config, "batch")) CHECK(again.step() == whole.step());  // past columns alone
      state = whole.state();
      CHECK(state == again.state());
      if (*reservoir == 0) CHECK(state == continued.state());
      states.push_back(std::move(state));
    }
    CHECK(states[1].size() - states[0].size() == 40 * (24 + (kIn + kOut + 1) * sizeof(float)));
    CHECK(states[2].size() - states[0].size() == 9 * 60 * (24 + (kIn + kOut + 1) * sizeof(float)));
    CHECK(!std::equal(states[0].begin() + 1000, states[0].end(), states[1].begin() + 1000));
    const Opened smaller(kConfig + "reservoir.columns = 7\n");
    smaller.ok(lsfit_state_set(smaller.session, states[2].data(), states[2].size()));
    CHECK(smaller.state().size() - states[0].size() == 7 * (24 + (kIn + kOut + 1) * sizeof(float)));

    const Opened opened(kConfig + "reservoir.columns = 40\n");
    const auto one = [&](const Opened& to, const long* id) {
      return to.observe(1, rows.x.data(), rows.y.data(), nullptr, id);
    };
    const long same = 5, own = test_world().rank();
    opened.fails(one(opened, nullptr), LSEM_ERR_ARGUMENT, "pass ids");
    opened.ok(one(opened, &same));
    if (test_world().size() == 1) opened.ok(one(opened, &same));
    opened.fails(lsfit_step(opened.session, nullptr), LSEM_ERR_ARGUMENT, "two columns have the identity 5");
    opened.ok(one(opened, &own));
    opened.step();
    const Opened plain;
    plain.ok(one(plain, own == 0 ? &own : nullptr));
    plain.fails(one(plain, own == 0 ? nullptr : &own), LSEM_ERR_ARGUMENT, "identities of some columns only");
    CHECK(lsfit_step(plain.session, nullptr) == (test_world().size() == 1 ? LSEM_OK : LSEM_ERR_ARGUMENT));
    lsfit_session* refused = nullptr;
    CHECK(lsfit_open(MPI_COMM_WORLD, "reservoir.batch = 3", kIn, kOut, nullptr, nullptr, &refused) ==
          LSEM_ERR_ARGUMENT);
  }

  TEST_CASE("a reservoir is a uniform sample of all columns, and draws different ones") {
    const auto alone = make_self_communicator();
    fit::Columns columns{1, 1}, drawn{1, 1};
    fit::Reservoir reservoir(500, 3, columns);
    std::vector<std::int64_t> ids(100);
    for (std::int64_t s = 0; s < 200; ++s) {
      std::iota(ids.begin(), ids.end(), 0);
      columns.weights.assign(100, 1);
      columns.y.assign(100, static_cast<float>(s));
      columns.x.assign(ids.begin(), ids.end());
      reservoir.reserve(100, 100);
      reservoir.offer(s, ids, {{.count = 100}}, 0, columns);
    }
    std::vector<fit::Run> order;
    std::vector<std::int64_t> counts{0};
    CHECK(reservoir.draw(7, 1000, 0, order, drawn, counts) == 500);
    std::set<std::pair<float, float>> different;
    double id = 0, step = 0;
    for (std::size_t i = 0; i < 500; ++i) {
      different.emplace(drawn.x[i], drawn.y[i]);
      id += drawn.x[i] / 500;
      step += drawn.y[i] / 500;
    }
    CHECK(different.size() == 500);
    CHECK(std::abs(id - 49.5) < 4 * 28.9 / std::sqrt(500.0));  // four standard errors
    CHECK(std::abs(step - 99.5) < 4 * 57.7 / std::sqrt(500.0));
  }

  TEST_CASE("weights of columns count as repetitions, and 0 leaves a column out") {
    const EmulatorContents rows = emulator_contents(200, kIn, kOut);
    const auto train = [&](const std::vector<std::int64_t>& numbers, const std::vector<float>& weights) {
      const Opened opened("model.hidden_size = 16\noptim.lr = 1e-3\n");
      set_moments(opened, rows.moments);
      double loss = 0;
      for (int s = 0; s < 5; ++s) {
        for (std::size_t i = static_cast<std::size_t>(test_world().rank()); i < numbers.size();
             i += static_cast<std::size_t>(test_world().size()))
          opened.ok(opened.observe(1, &rows.x[to_size(numbers[i] * kIn)], &rows.y[to_size(numbers[i] * kOut)],
                                   weights.empty() ? nullptr : &weights[i]));
        loss = opened.step();
      }
      return loss;
    };
    const double repeated = train({0, 1, 1, 2, 2, 2}, {});
    CHECK(train({0, 1, 2, 3}, {1, 2, 3, 0}) == doctest::Approx(repeated).epsilon(1e-5));
    CHECK(train({0, 1, 2, 3}, {1, 1, 1, 1}) != doctest::Approx(repeated).epsilon(1e-5));
  }

  TEST_CASE("a column of weight 0 is left out, whatever it holds, also of the moments") {
    const EmulatorContents rows = emulator_contents(100, kIn, kOut);
    const auto train = [&](const std::vector<float>& between) {
      const Opened opened("model.hidden_size = 16\nrun.reproducible = true\n");
      std::vector<float> x(rows.x.begin(), rows.x.begin() + kIn), y(rows.y.begin(), rows.y.begin() + kOut), weights{1};
      for (const float value : between) {
        x.resize(x.size() + kIn, value), y.resize(y.size() + kOut, value);
        weights.push_back(0);
      }
      x.insert(x.end(), rows.x.begin() + kIn, rows.x.end()), y.insert(y.end(), rows.y.begin() + kOut, rows.y.end());
      weights.resize(weights.size() + 99, 1);
      std::vector<long> ids(weights.size());
      for (long i = 1, next = 1; i < std::ssize(ids); ++i) ids[to_size(i)] = weights[to_size(i)] == 0 ? -i : next++;
      for (int s = 0; s < 2; ++s) {
        const bool mine = test_world().rank() == 0;
        opened.ok(opened.observe(mine ? std::ssize(ids) : 0, x.data(), y.data(), weights.data(), ids.data()));
        opened.step();
      }
      return opened.state();
    };
    CHECK(train({-999, NAN, 1e30F}) == train({}));
  }

  TEST_CASE("columns in the memory of a GPU train as those of the host") {
    const EmulatorContents rows = emulator_contents(100, kIn, kOut);
    const std::vector<float> weights(50, 2);
    const Opened host, device;
    if (gpu_count() == 0) {
      CHECK(lsfit_gpu_observe_f32(device.session, 1, rows.x.data(), kIn, 1, rows.y.data(), kOut, 1, nullptr, nullptr,
                                  nullptr) == LSEM_ERR_GPU);
      lsfit_session* refused = nullptr;
      CHECK(lsfit_open(MPI_COMM_WORLD, "run.device = cuda", kIn, kOut, nullptr, nullptr, &refused) ==
            LSEM_ERR_ARGUMENT);
      CHECK(contains(lsem_last_error(), built_with_cuda() ? "sees no GPU" : "built without CUDA"));
      return;
    }
    std::vector<float> by_variable(50 * kIn);
    for (std::size_t i = 0; i < by_variable.size(); ++i) by_variable[i % kIn * 50 + i / kIn] = rows.x[i];
    const DeviceArray<float> x(by_variable), y(rows.y), factors(weights);
    for (int s = 0; s < 2; ++s) {
      host.ok(host.observe(50, rows.x.data(), rows.y.data(), weights.data()));
      device.ok(lsfit_gpu_observe_f32(device.session, 50, x.data(), 1, 50, y.data(), kOut, 1, factors.data(), nullptr,
                                      nullptr));
      CHECK(host.step() == device.step());
    }
    CHECK(host.state() == device.state());
    CHECK(lsfit_gpu_observe_f32(device.session, 50, x.data(), 0, 50, y.data(), kOut, 1, nullptr, nullptr, nullptr) ==
          LSEM_ERR_ARGUMENT);
    lsem_model* model = nullptr;
    device.ok(lsfit_model(device.session, &model));
    lsem_gpu* copy = nullptr;
    CHECK(lsem_gpu_open(model, -1, &copy) == LSEM_OK);
    const DeviceArray<float> predicted(50 * kOut);
    CHECK(lsem_gpu_predict_f32(copy, 50, x.data(), 1, 50, predicted.data(), kOut, 1, nullptr) == LSEM_OK);
    std::vector<float> expected(50 * kOut);
    CHECK(lsem_predict_f32(model, 50, rows.x.data(), kIn, expected.data(), kOut, nullptr) == LSEM_OK);
    const std::vector<float> found = predicted.read();
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-4));
    lsem_gpu_close(copy);
  }

  TEST_CASE("a session on a GPU takes the steps of one on CPUs, and each continues the state of the other") {
    if (gpu_count() == 0) return;
    const Device gpu = own_gpu();
    const CurrentGpu current(gpu);
    const EmulatorContents rows = emulator_contents(200, kIn, kOut);
    std::vector<double> x(rows.x.begin(), rows.x.begin() + 60 * kIn), y(rows.y.begin(), rows.y.begin() + 60 * kOut);
    std::vector<double> weights(60);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i % 3);
    const DeviceArray<double> gpu_x(x, gpu.index), gpu_y(y, gpu.index), gpu_weights(weights, gpu.index);
    for (const char* more : {"optim.name = adamw\n", "optim.name = sgd\n", "run.reproducible = true\n",
                             "loss.smooth_weight = 0.1\nloss.smooth_order = 1\n"}) {
      CAPTURE(std::string(more));
      const std::string all = join("model.hidden_size = 16\noptim.lr = 1e-3\noptim.ema = 0.9\n", more);
      const Opened cpu(all), one(all + "run.device = cuda\n");
      const bool plain = !contains(all, "smooth");
      for (int s = 0; s < 4; ++s) {
        cpu.ok(lsfit_observe_f64(cpu.session, 60, x.data(), kIn, y.data(), kOut, plain ? weights.data() : nullptr,
                                 nullptr));
        one.ok(lsfit_gpu_observe_f64(one.session, 60, gpu_x.data(), kIn, 1, gpu_y.data(), kOut, 1,
                                     plain ? gpu_weights.data() : nullptr, nullptr, nullptr));
        if (s % 2 == 1)  // with columns in host memory
          for (const Opened* to : {&cpu, &one}) observe(*to, rows, 0, 100, false);
        CHECK(one.step() == doctest::Approx(cpu.step()).epsilon(1e-4));
      }
      const std::vector<char> before = one.state();
      CHECK(same_on_all(before));
      std::vector<double> bad = x;
      bad[5 * kIn + 2] = INFINITY;
      bad[2] = 1e30;  // the loss overflows
      const DeviceArray<double> not_finite(bad, gpu.index);
      one.fails(lsfit_gpu_observe_f64(one.session, 60, not_finite.data(), kIn, 1, gpu_y.data(), kOut, 1, nullptr,
                                      nullptr, nullptr),
                LSEM_ERR_NOT_FINITE, "column 5 of the call: x2 is inf");
      CHECK(lsfit_step(one.session, nullptr) == LSEM_ERR_NOT_FINITE);
      one.ok(lsfit_gpu_observe_f64(one.session, 5, not_finite.data(), kIn, 1, gpu_y.data(), kOut, 1, nullptr, nullptr,
                                   nullptr));
      CHECK(lsfit_step(one.session, nullptr) == LSEM_ERR_ARGUMENT);
      CHECK(one.state() == before);
      cpu.ok(lsfit_state_set(cpu.session, before.data(), before.size()));
      CHECK(cpu.state() == before);
      for (const Opened* to : {&cpu, &one}) observe(*to, rows, 0, 100, true);
      CHECK(one.step() == doctest::Approx(cpu.step()).epsilon(1e-4));
      const std::vector<char> after = cpu.state();
      one.ok(lsfit_state_set(one.session, after.data(), after.size()));
      CHECK(one.state() == after);
    }
  }

  TEST_CASE("predictions and model files are those of the current weights") {
    const EmulatorContents rows = emulator_contents(300, kIn, kOut);
    const Opened opened;
    lsem_model* model = nullptr;
    set_moments(opened, rows.moments);
    opened.fails(lsfit_model(opened.session, &model), LSEM_ERR_ARGUMENT, "take a step, or continue from a state");
    CHECK(model == nullptr);
    std::vector<float> y(2 * kOut), before(2 * kOut);
    for (int s = 0; s < 2; ++s) {
      observe(opened, rows, 0, 300, false);
      opened.step();
      opened.ok(lsfit_model(opened.session, &model));
      CHECK(lsem_predict_f32(model, 2, rows.x.data(), kIn, y.data(), kOut, nullptr) == LSEM_OK);
      CHECK(y != before);
      before = y;
    }
    const TempDir dir;
    const std::string folder = test_world().communicator().broadcast_text(dir.path().string(), 0, "folder");
    for (const char* ending : {".lsem", ".onnx", ".safetensors", ".pt"})
      opened.ok(lsfit_export(opened.session, (folder + "/m" + ending).c_str()));
    test_world().communicator().barrier("exported");
    lsem_model* read = nullptr;
    CHECK(lsem_open((folder + "/m.lsem").c_str(), &read) == LSEM_OK);
    CHECK(lsem_predict_f32(read, 2, rows.x.data(), kIn, y.data(), kOut, nullptr) == LSEM_OK);
    CHECK(y == before);
    lsem_close(read);
    CHECK(lsfit_export(opened.session, (folder + "/m.txt").c_str()) == LSEM_ERR_ARGUMENT);
    CHECK(lsfit_export(opened.session, "/nonexistent/m.lsem") == LSEM_ERR_ARGUMENT);
    test_world().communicator().barrier("read");
  }

  TEST_CASE("a mistake is an error on all ranks and changes nothing") {
    const EmulatorContents rows = emulator_contents(100, kIn, kOut);
    const int rank = test_world().rank(), last = test_world().size() - 1;
    const Opened opened;
    opened.fails(lsfit_step(opened.session, nullptr), LSEM_ERR_ARGUMENT, "no rank has observed a column");
    observe(opened, rows, 0, 100, false);
    opened.step();
    const std::vector<char> state = opened.state();
    std::vector<float> x(rows.x.begin(), rows.x.begin() + 2 * kIn);
    x[kIn + 1] = NAN;
    if (rank == last) {
      opened.fails(opened.observe(2, x.data(), rows.y.data()), LSEM_ERR_NOT_FINITE, "column 1 of the call: x1 is nan");
    } else {
      observe(opened, rows, 0, 10, false);
    }
    opened.fails(lsfit_step(opened.session, nullptr), LSEM_ERR_NOT_FINITE, join("rank ", last, " of ", last + 1));
    const float none = 0;
    opened.ok(opened.observe(1, rows.x.data(), rows.y.data(), &none));
    opened.fails(lsfit_step(opened.session, nullptr), LSEM_ERR_ARGUMENT, "no rank has observed a column of a weight");
    x[kIn + 1] = 3e38F;  // the loss overflows
    opened.ok(opened.observe(2, x.data(), x.data()));
    CHECK(lsfit_step(opened.session, nullptr) == LSEM_ERR_ARGUMENT);
    CHECK(opened.state() == state);
    observe(opened, rows, 0, 100, false);
    opened.step();  // the session goes on

    lsfit_session* refused = nullptr;
    for (const char* config :
         {"optim.lr = -1", "no.key = 1", "eval.every = 2", "schedule.unit = epoch", "/nonexistent.ini"})
      CHECK(lsfit_open(MPI_COMM_WORLD, config, kIn, kOut, nullptr, nullptr, &refused) == LSEM_ERR_ARGUMENT);
    CHECK(lsfit_open(MPI_COMM_WORLD, nullptr, kIn, kOut, "a,b", nullptr, &refused) == LSEM_ERR_ARGUMENT);
    std::string names = "t";
    for (int i = 1; i < kIn + kOut; ++i) names += join(", v", i);
    CHECK(lsfit_open(MPI_COMM_WORLD, nullptr, kIn, kOut, (names + "\n").c_str(), nullptr, &refused) == LSEM_OK);
    CHECK(lsfit_close(refused) == LSEM_OK);
    names.replace(names.find("v1"), 2, "t");  // blanks around a name do not count
    CHECK(lsfit_open(MPI_COMM_WORLD, nullptr, kIn, kOut, names.c_str(), nullptr, &refused) == LSEM_ERR_ARGUMENT);
    CHECK(contains(lsem_last_error(), "two inputs are named 't'"));
    CHECK(lsfit_open(MPI_COMM_NULL, nullptr, kIn, kOut, nullptr, nullptr, &refused) == LSEM_ERR_ARGUMENT);
    if (last > 0) {
      CHECK(lsfit_open(MPI_COMM_WORLD, join("optim.lr = ", rank + 1).c_str(), kIn, kOut, nullptr, nullptr, &refused) ==
            LSEM_ERR_ARGUMENT);
      CHECK(contains(lsem_last_error(), "optim.lr"));
    }
    CHECK(refused == nullptr);
  }

  TEST_CASE("what fails on one rank leaves no rank with another network or state" *
            doctest::skip(cuda_host::kAddressSanitizer)) {
    const EmulatorContents rows = emulator_contents(100, kIn, kOut);
    const bool last = test_world().rank() + 1 == test_world().size();
    const Opened opened("model.hidden_size = 2048\nmodel.hidden_layers = 3\n");  // 33 MB
    observe(opened, rows, 0, 100, false);
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit tight = {pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{24} << 20), before.rlim_max};
    if (last) setrlimit(RLIMIT_AS, &tight);
    CHECK(lsfit_step(opened.session, nullptr) != LSEM_OK);
    setrlimit(RLIMIT_AS, &before);
    lsem_model* model = nullptr;
    opened.fails(lsfit_model(opened.session, &model), LSEM_ERR_ARGUMENT, "does not exist yet");

    const Opened other;
    observe(other, rows, 0, 100, false);
    other.step();
    std::vector<char> first = other.state();
    observe(other, rows, 0, 100, false);
    other.step();
    const std::vector<char> second = other.state();
    CHECK(lsfit_state_set(other.session, first.data(), first.size() - (last ? 1 : 0)) == LSEM_ERR_DAMAGED);
    CHECK(other.state() == second);
    if (test_world().size() == 1) return;
    const std::vector<char>& one = last ? second : first;
    other.fails(lsfit_state_set(other.session, one.data(), one.size()), LSEM_ERR_ARGUMENT, "different ones");
    CHECK(other.state() == second);
  }

  TEST_CASE("sessions on parts of the ranks learn side by side, and a thousand leave nothing behind") {
    const EmulatorContents rows = emulator_contents(100, kIn, kOut);
    const int rank = test_world().rank();
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
    {
      const Opened whole, of_part(kConfig, part);
      for (int s = 0; s < 2; ++s) {
        observe(whole, rows, 0, 80, false);
        of_part.ok(of_part.observe(20, rows.x.data(), rows.y.data()));
        of_part.step();
        whole.step();
      }
    }
    for (int i = 0; i < 1000; ++i) const Opened again(kConfig, part);
    MPI_Comm_free(&part);
  }

  TEST_CASE("a rank that does not take part is an error within dist.timeout") {
    if (test_world().size() == 1) return;
    const EmulatorContents rows = emulator_contents(100, kIn, kOut);
    {
      const Opened opened("model.hidden_size = 16\ndist.timeout = 1\n"), other;
      observe(opened, rows, 0, 100, false);
      opened.step();
      observe(opened, rows, 0, 100, false);
      if (test_world().rank() > 0) opened.fails(lsfit_step(opened.session, nullptr), LSFIT_ERR_LOST, "waited 1 s");
      observe(other, rows, 0, 100, false);
      other.step();  // waits for the ranks that have waited
    }
    test_world().communicator().barrier("lost");
  }
}
