// bench_kgat: seconds of KGAT's jobs on a prepared graph, and the share of memory bandwidth that its sparse product
// reaches.
//
//   [mpirun -n R] bench_kgat --data FILE.h5 [--jobs cf,kg,attention,evaluation,spmm] [OPTION...]
//
// Steps are those of the trainer, including the draw of their batches; on a GPU the time runs until the work is
// complete. Reports the median of at least three, of wall time and of the processor time of this rank's threads. Prints
// one JSON object per job.

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "lockstep/base/options.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/tasks/kgat/kgat_task.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/trainer.hpp"
#include "tasks/kgat/kgat_step.hpp"

using namespace lockstep;

namespace {

struct Arguments {
  std::string data, mode, device, storage;
  std::vector<std::string> jobs;
  double seconds = 0, row_threshold = 0;
  std::int64_t batch = 0, threads = 0;
};

/// Returns false if help was asked for.
bool parse(Arguments& a, int argc, char** argv) {
  Options options("bench_kgat", "Seconds of KGAT's jobs on a prepared graph");
  options.add("data=FILE", &a.data, "", "prepared graph").required();
  options.add("jobs", &a.jobs, {"cf", "kg", "attention", "evaluation", "spmm"}, "what to measure");
  options.choice("mode", &a.mode, "nested-rows", {"replicate", "nested-rows"}, "dist.mode");
  options.add("row-threshold", &a.row_threshold, 0.7, fraction, "dist.row_threshold");
  options.choice("storage", &a.storage, "fp32", {"fp32", "bf16", "fp16"}, "model.storage");
  options.choice("device", &a.device, "cpu", {"cpu", "cuda"}, "where to measure");
  options.add("seconds", &a.seconds, 5, positive, "time of each measurement");
  options.add("batch", &a.batch, 1024, positive, "samples of a step on items; a step on triples has twice as many");
  options.add("threads", &a.threads, 0, non_negative, "threads of a rank; 0: all its cores");
  return options.parse({argv + 1, argv + argc});
}

struct Times {
  double wall = 0, processor = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median seconds of a call on the slowest rank, after one warm-up call. Every rank makes the same number of calls.
Times seconds_of(Communicator& comm, Device device, double budget, const auto& call) {
  const auto f = [&] {
    call();
    Stream(device).synchronize();
  };
  f();
  std::vector<double> wall, processor;
  for (double sum = 0; sum < budget || wall.size() < 3;) {
    comm.barrier("bench");
    const Stopwatch watch;
    const std::clock_t before = std::clock();
    f();
    processor.push_back(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC);
    wall.push_back(comm.all_reduced(watch.seconds(), ReduceOp::max, "seconds"));
    sum += wall.back();
  }
  return {median(wall), comm.all_reduced(median(processor), ReduceOp::max, "seconds")};
}

/// Bytes per second of a[i] = b[i] + s c[i] over arrays larger than any cache, or of a copy on a GPU. The best of
/// several runs.
double stream_bandwidth(Device device) {
  if (device.is_cuda()) {
    constexpr std::size_t kBytes = std::size_t{1} << 30;
    const Buffer to(device, kBytes), from(device, kBytes);
    const Stream stream(device);
    double best = 0;
    for (int run = 0; run < 10; ++run) {
      const Stopwatch watch;
      copy_bytes(stream, to.data(), from.data(), kBytes);
      stream.synchronize();
      best = std::max(best, 2.0 * static_cast<double>(kBytes) / watch.seconds());
    }
    return best;
  }
  constexpr std::int64_t kCount = std::int64_t{1} << 26;
  const OwnedTensor a(DType::f64, {kCount}), b(DType::f64, {kCount}), c(DType::f64, {kCount});
  double *x = a->data<double>(), *y = b->data<double>(), *z = c->data<double>();
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < kCount; ++i) {
    x[i] = 0;
    y[i] = 1;
    z[i] = 2;
  }
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    const Stopwatch watch;
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < kCount; ++i) x[i] = y[i] + 3 * z[i];
    best = std::max(best, 24.0 * static_cast<double>(kCount) / watch.seconds());
  }
  return best;
}

struct Bench {
  World& world;
  Arguments a;
  int threads;
  LocalDataMemory data_memory;
  Device device;
  KgatTask model;
  KgatStep step;
  KgatSampler sampler;

  static KgatTask::Options options(const Arguments& a) {
    KgatTask::Options o;
    o.seed = 2019;
    o.message_dropout = {0.1, 0.1, 0.1};
    if (a.storage != "fp32") o.storage = a.storage == "bf16" ? DType::bf16 : DType::f16;
    return o;
  }
  static KgatStepOptions step_options(World& w, const Arguments& a) {
    KgatStepOptions o;
    o.world = &w;
    o.message_dropout = {0.1, 0.1, 0.1};
    o.seed = 2019;
    o.mode = a.mode == "replicate" ? KgatMode::replicate : KgatMode::nested_rows;
    o.row_threshold = a.row_threshold;
    return o;
  }
  static int threads_of(World& w, const Arguments& a) {
    RunConfig config;
    config.run.threads = a.threads;
    return prepare_cpu(w, config);
  }
  Bench(World& w, const Arguments& arguments)
      : world(w),
        a(arguments),
        threads(threads_of(w, arguments)),
        device(choose_device(w, a.device)),
        model(options(a), KgData::read(a.data, data_memory)),
        step(w.communicator(), model.net(), moved().propagation(), step_options(w, a)),
        sampler(model.data(), 2019) {}
  KgatTask& moved() {
    model.move_to(device);
    return model;
  }

  void report(const char* job, Times seconds, double amount, const char* unit, const std::string& more = "") {
    if (world.rank() != 0) return;
    std::printf(
        "{\"job\": \"%s\", \"data\": \"%s\", \"ranks\": %d, \"threads\": %d, \"device\": \"%s\", \"mode\": \"%s\", "
        "\"seconds\": %.6g, \"processor_seconds\": %.6g, \"per_s\": %.6g, \"unit\": \"%s\"%s}\n",
        job, std::filesystem::path(a.data).filename().c_str(), world.size(), threads, a.device.c_str(), a.mode.c_str(),
        seconds.wall, seconds.processor, amount / seconds.wall, unit, more.c_str());
    std::fflush(stdout);
  }

  void cf() {
    CfBatch batch;
    std::int64_t number = 0;
    const Times seconds = seconds_of(world.communicator(), device, a.seconds, [&] {
      sampler.interactions(number, a.batch, batch, model.data().entities);
      step.step_cf(batch, number++, 1e-4);
    });
    report("cf", seconds, static_cast<double>(a.batch), "samples",
           join(", \"received_bytes\": ", step.exchange().received_bytes() / std::max<std::int64_t>(1, number)));
  }
  void kg() {
    KgBatch batch;
    std::int64_t number = 0;
    const Times seconds = seconds_of(world.communicator(), device, a.seconds, [&] {
      sampler.triples(number++, 2 * a.batch, batch);
      step.step_kg(batch, 1e-4);
    });
    report("kg", seconds, 2 * static_cast<double>(a.batch), "triples");
  }
  void attention() {
    report("attention", seconds_of(world.communicator(), device, a.seconds, [&] { step.refresh_adjacency(); }),
           static_cast<double>(model.data().graph.triples()), "triples");
  }
  void evaluation() {
    step.settle();
    const Times seconds = seconds_of(world.communicator(), device, a.seconds,
                                     [&] { evaluate(world.communicator(), model, Split::test, threads); });
    report("evaluation", seconds, static_cast<double>(model.size(Split::test)), "users");
  }
  void spmm() {
    const KgGraph& graph = model.data().graph;
    KgatPropagation& p = model.propagation();
    const ops::RowSet all = ops::RowSet::range(0, graph.nodes);
    p.begin(nullptr);
    p.store(0, all);
    Stream own(device);
    const Times seconds = seconds_of(world.communicator(), device, a.seconds,
                                     [&] { ops::spmm(own, {p.s(0)}, p.pattern(), p.values(), p.stored(0), all); });
    // Per entry: a row of x, a column number and a value.
    const double bytes = static_cast<double>(graph.nnz()) * (64 * (a.storage == "fp32" ? 4 : 2) + 8),
                 stream = stream_bandwidth(device);
    report("spmm", seconds, bytes, "bytes",
           join(", \"stream_bytes_per_s\": ", stream, ", \"of_stream\": ", bytes / seconds.wall / stream));
  }
  void run() {
    const auto wanted = [&](const char* job) { return std::find(a.jobs.begin(), a.jobs.end(), job) != a.jobs.end(); };
    if (wanted("cf")) cf();
    if (wanted("kg")) kg();
    if (wanted("attention")) attention();
    if (wanted("evaluation")) evaluation();
    if (wanted("spmm")) spmm();
  }
};

}  // namespace

int main(int argc, char** argv) {
  World world(&argc, &argv);
  return world.run([&] {
    if (Arguments a; parse(a, argc, argv)) Bench(world, a).run();
    return 0;
  });
}
