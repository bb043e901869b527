#include "apps/lockstep/measure_step.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "lockstep/base/profile.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/device/host_memory.hpp"
#include "lockstep/ops/product_choices.hpp"
#include "lockstep/train/profiler.hpp"

namespace lockstep::apps {

namespace {

/// Resident memory of this process.
double resident_bytes() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

/// Median time of an all-reduce of so many elements without computation, on this rank. Units: seconds.
template <class T>
double all_reduce_s(Communicator& comm, std::int64_t elements) {
  constexpr int kWarmup = 3, kMost = 200;
  constexpr double kSeconds = 1;
  std::vector<T> message(elements);
  std::vector<double> times;
  std::int64_t count = kWarmup;
  for (std::int64_t i = 0; i < count; ++i) {
    Stopwatch watch;
    comm.all_reduce(std::span(message), ReduceOp::sum, "benchmark");
    if (i >= kWarmup) times.push_back(watch.seconds());
    if (i + 1 == kWarmup) count += std::min<std::int64_t>(kMost, repetitions(comm, watch.seconds(), kSeconds, 5));
  }
  return quantile(times);
}

/// A training, step by step.
class Steps {
 public:
  struct Times {
    double whole = 0, compute = 0, reduce = 0, update = 0;
    std::int64_t samples = 0;
  };

  Steps(World& world, const RunConfig& config, Task& model, int threads, std::int64_t from)
      : lr_(config.scaled_lr(world.size())) {
    ops::tune_products(config.run.tune_products);
    world.together("preparing the training", [&] {
      program_ = model.make_program(world, config, threads);
      require_usage(from < program_->epoch().positions, "option from_step = ", from, ": an epoch has ",
                    program_->epoch().positions, " steps");
    });
    state_.step = state_.position = from;
  }
  Times next() {
    if (state_.position == program_->epoch().positions) {
      state_.position = 0;
      ++state_.epoch;
    }
    const Stopwatch watch;
    const profile::Span step("step", profile::Kind::phase, nullptr, static_cast<std::uint32_t>(state_.step + 1));
    const StepResult done = program_->step(state_, lr_, nullptr, 0);
    state_.position += done.advance;
    ++state_.step;
    return {watch.seconds(), done.compute, done.reduce, done.update, done.samples};
  }
  /// Waits for the last step, on which a GPU may still work.
  void finish() { program_->settle(UpTo::outcomes); }
  std::int64_t done() const { return state_.step; }
  ProgramFacts facts() const { return program_->facts(); }

 private:
  std::unique_ptr<TrainingProgram> program_;
  TrainState state_;
  double lr_;
};

}  // namespace

double quantile(std::vector<double> values, double at) {
  if (values.empty()) return 0;
  const auto index = std::lround(at * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

std::int64_t repetitions(Communicator& comm, double each_s, double seconds, std::int64_t least) {
  const double slowest = comm.all_reduced(each_s, ReduceOp::max, "time of one repetition");
  return std::max(least, static_cast<std::int64_t>(seconds / std::max(slowest, 1e-9)));
}

StepMeasurement measure_step(World& world, const RunConfig& config, Task& model, int threads,
                             const StepBudget& budget) {
  Communicator& comm = world.communicator();
  StepMeasurement m;
  m.ranks = world.size();
  m.threads = threads;
  m.batch = config.global_batch(world.size()) * config.batch.accumulate;
  m.rows = model.size(Split::train);
  Steps training(world, config, model, threads, budget.from_step);
  m.first_s = training.next().whole;
  training.finish();
  const double start_s = process_seconds();

  const Stopwatch warm;
  const std::int64_t warmup = std::max<std::int64_t>(budget.warmup, 1);
  for (std::int64_t i = 0; i < warmup; ++i) training.next();
  training.finish();
  const double each_s = warm.seconds() / static_cast<double>(warmup);
  const std::int64_t least =
      std::min(budget.least, repetitions(comm, each_s, 10 * budget.seconds, std::min<std::int64_t>(budget.least, 3)));
  m.steps = budget.steps > 0 ? budget.steps : repetitions(comm, each_s, budget.seconds, least);
  const std::int64_t window = std::clamp<std::int64_t>(m.steps / 40, 1, 200);

  std::vector<double> walls, reductions;
  Steps::Times sum;
  std::int64_t samples = 0;
  comm.barrier("starting the benchmark");
  if (budget.ledger) start_ledger();
  Stopwatch since_window;
  for (std::int64_t i = 0; i < m.steps; ++i) {
    const Steps::Times t = training.next();
    if (i + 1 == m.steps && !budget.ledger) training.finish();
    walls.push_back(t.whole);
    reductions.push_back(t.reduce);
    samples += t.samples;
    sum.whole += t.whole;
    sum.compute += t.compute;
    sum.reduce += t.reduce;
    sum.update += t.update;
    if ((i + 1) % window == 0)
      m.samples_per_s.push_back(static_cast<double>(std::exchange(samples, 0)) / since_window.restart());
  }
  if (budget.ledger) {
    m.ledger = finish_ledger();
    training.finish();  // not before: the wait for the last step is no part of a step
  }
  if (budget.profiled > 0) {
    const Device device = model.params().device();
    Profiler profiler(world, threads, device, model.params().dtype());
    std::vector<double> recorded;
    for (std::int64_t i = 0; i < budget.profiled; ++i) recorded.push_back(training.next().whole);
    training.finish();
    m.recorded_s = quantile(recorded);
    m.timeline = profiler.finish({training.done() - budget.profiled + 1, training.done()});
  }
  const auto mean = [&](double seconds) {
    return comm.all_reduced(seconds, ReduceOp::sum, "phase times") / static_cast<double>(comm.size() * m.steps);
  };
  m.median_s = quantile(walls);
  m.p95_s = quantile(walls, 0.95);
  m.mean_s = mean(sum.whole);
  m.compute_s = mean(sum.compute);
  m.reduce_s = mean(sum.reduce);
  m.update_s = mean(sum.update);
  comm.all_reduce(std::span<double>(reductions), ReduceOp::min, "times of reductions");
  const double mean_exposed = std::accumulate(reductions.begin(), reductions.end(), 0.0) / static_cast<double>(m.steps);
  m.exposed_s = std::min(quantile(reductions), mean_exposed);
  const Device device = model.params().device();
  if (device.is_cuda()) m.gpu_memory = gpu_memory(device.index);
  m.host_memory = host_memory();
  m.memory_bytes = comm.all_reduced(device.is_cuda() ? static_cast<double>(m.gpu_memory.all_used()) : resident_bytes(),
                                    ReduceOp::max, "memory");
  m.start_s = comm.all_reduced(start_s, ReduceOp::max, "time of the start");
  const std::int64_t elements = model.params().flat_size();
  m.facts = training.facts();
  m.gradient_bytes = 4 * static_cast<double>(elements);
  if (comm.size() > 1)
    m.alone_s = visit_float(model.params().dtype(), [&]<class T>() { return all_reduce_s<T>(comm, elements); });
  return m;
}

}  // namespace lockstep::apps
