#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "apps/lockstep/bench_scaling.hpp"
#include "apps/lockstep/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/models/emulator_config.hpp"
#include "lockstep/models/emulator_operators.hpp"
#include "lockstep/ops/fma_peak.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/trainer.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep::apps {

namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string what;
  std::int64_t steps = 0, warmup = 20;
  double seconds = 3;
  bool json = false, sweep_threads = false, sweep_batch = false, synthetic = false;
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  ScalingQuestion scaling;
};

/// Rows whose targets are a smooth function of standard normal inputs.
EmulatorData synthetic_data(const BenchOptions& options, std::uint64_t seed, Placement& placement) {
  const std::int64_t n = options.rows, n_in = options.inputs, n_out = options.outputs;
  EmulatorData data;
  data.path = "(synthetic)";
  data.x = placement.place(DType::f32, {n, n_in}, [&](const Tensor& x) {
    const Philox draw(seed, 0, "bench.x");
    for (std::int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[i] = static_cast<float>(draw.normal(static_cast<std::uint64_t>(i)));
  });
  data.y = placement.place(DType::f32, {n, n_out}, [&](const Tensor& y) {
    for (std::int64_t r = 0; r < n; ++r) {
      const float* x = data.x.data<float>() + r * n_in;
      for (std::int64_t o = 0; o < n_out; ++o)
        y.data<float>()[r * n_out + o] = std::sin(x[o % n_in] + 0.5F * x[(o + 1) % n_in] * x[(o + 2) % n_in]);
    }
  });
  data.order = placement.place(DType::i32, {n}, [](const Tensor& order) {
    for (std::int64_t r = 0; r < order.size(); ++r) order.data<std::int32_t>()[r] = static_cast<std::int32_t>(r);
  });
  const std::int64_t held_out = std::min<std::int64_t>(n / 10, 1000);
  data.count = {n - held_out, held_out, 0};
  data.moments = {std::vector<double>(static_cast<std::size_t>(n_in), 0.0),
                  std::vector<double>(static_cast<std::size_t>(n_in), 1.0),
                  std::vector<double>(static_cast<std::size_t>(n_out), 0.0),
                  std::vector<double>(static_cast<std::size_t>(n_out), 0.7)};
  EmulatorVariables& v = data.variables;
  for (std::int64_t i = 0; i < n_in; ++i) v.input_names.push_back(join("in", i));
  for (std::int64_t o = 0; o < n_out; ++o) v.output_names.push_back(join("out", o));
  v.input_cf = v.input_units = std::vector<std::string>(v.input_names.size());
  v.output_cf = v.output_units = std::vector<std::string>(v.output_names.size());
  v.input_level.assign(v.input_names.size(), 0);
  v.output_level.assign(v.output_names.size(), 0);
  return data;
}

std::unique_ptr<Model> synthetic_model(const RunConfig& config, const BenchOptions& options, Placement& placement) {
  const auto* emulator = dynamic_cast<const EmulatorConfig*>(config.model.get());
  require_usage(emulator != nullptr, "model.kind = ", config.model_kind,
                ": needs data.path, only the emulator has synthetic data");
  EmulatorModel::Options model = emulator->model_options(config.dtype(), config.run.seed);
  model.arch.n_in = options.inputs, model.arch.n_out = options.outputs;
  return std::make_unique<EmulatorModel>(model, synthetic_data(options, config.run.seed, placement));
}

/// Peak resident memory of this process. Units: bytes.
double peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Wall time since the kernel started this process, to 10 ms; 0 where /proc does not tell. Units: seconds.
double process_age_s() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string line;
  double up = 0;
  if (!std::getline(stat, line) || !(uptime >> up)) return 0;
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 2, line.size())));
  std::string field;
  for (int i = 0; i < 20 && fields >> field; ++i) continue;  // field 22 of the line, the 20th after the name
  return up - std::atof(field.c_str()) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double median(std::vector<double> values, double quantile = 0.5) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// Rates of windows: the median is the figure, the ends are how far to trust it.
Json rates(const std::vector<double>& per_s) {
  return {{"per_s", median(per_s)},
          {"best", *std::max_element(per_s.begin(), per_s.end())},
          {"worst", *std::min_element(per_s.begin(), per_s.end())},
          {"windows", per_s.size()}};
}

/// How many repetitions of something that takes `each_s` on the slowest rank fill the time; the same on all ranks.
std::int64_t repetitions(Communicator& comm, double each_s, double seconds, std::int64_t least) {
  const double slowest = comm.all_reduced(each_s, ReduceOp::max, "time of one repetition");
  return std::max(least, static_cast<std::int64_t>(seconds / std::max(slowest, 1e-9)));
}

/// Memory of this process as it is now: the data set and what a step works with.
double resident_bytes() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

double peak_flops(World& world, DType dtype, int threads) {
  world.communicator().barrier("measuring the peak");
  return world.communicator().all_reduced(ops::measure_fma_peak(dtype, threads), ReduceOp::sum, "peak");
}

/// Seconds per all-reduce of the gradient's bytes with nothing else going on: the median of this rank.
template <class T>
double all_reduce_s(Communicator& comm, std::int64_t elements) {
  std::vector<T> message(static_cast<std::size_t>(elements));
  std::vector<double> times;
  for (int i = 0; i < 220; ++i) {
    Stopwatch watch;
    comm.all_reduce(std::span(message), ReduceOp::sum, "benchmark");
    if (i >= 20) times.push_back(watch.seconds());
  }
  return median(times);
}

/// Optimizer steps as the trainer takes them, by the model's own training program.
Json bench_train(World& world, const RunConfig& config, const BenchOptions& options, Model& model, int threads) {
  Communicator& comm = world.communicator();
  std::unique_ptr<TrainingProgram> program;
  world.together("preparing the training", [&] { program = make_program(world, config, model, threads); });
  const std::int64_t batch = config.global_batch(world.size()) * config.batch.accumulate;
  const std::int64_t rows = model.size(Split::train);
  const double lr = config.scaled_lr(world.size());
  TrainState state;
  struct Times {
    double whole = 0, compute = 0, reduce = 0, update = 0;
    std::int64_t samples = 0;
  };
  const auto step = [&] {
    if (state.position == program->epoch_length()) state.position = 0, ++state.epoch;
    Stopwatch watch;
    const StepResult done = program->step(state, lr, nullptr, 0);
    state.position += done.advance;
    ++state.step;
    return Times{watch.seconds(), done.compute, done.reduce, done.update, done.samples};
  };

  const Times first = step();
  const double start_s = process_age_s();
  Stopwatch warm;
  const std::int64_t warmup = std::max<std::int64_t>(options.warmup, 1);
  for (std::int64_t i = 0; i < warmup; ++i) step();
  const double each_s = warm.seconds() / static_cast<double>(warmup);
  // At least fifty, unless they would take more than ten times as long as was asked for.
  const std::int64_t least = std::min<std::int64_t>(50, repetitions(comm, each_s, 10 * options.seconds, 3));
  const std::int64_t steps = options.steps > 0 ? options.steps : repetitions(comm, each_s, options.seconds, least);
  const std::int64_t window = std::clamp<std::int64_t>(steps / 40, 1, 200);

  std::vector<double> walls, windows;
  Times sum;
  std::int64_t samples = 0;
  comm.barrier("starting the benchmark");
  Stopwatch since_window;
  for (std::int64_t i = 0; i < steps; ++i) {
    const Times t = step();
    walls.push_back(t.whole);
    samples += t.samples;
    sum.whole += t.whole, sum.compute += t.compute, sum.reduce += t.reduce, sum.update += t.update;
    if ((i + 1) % window == 0)
      windows.push_back(static_cast<double>(std::exchange(samples, 0)) / since_window.restart());
  }
  const double n = static_cast<double>(steps);
  const auto over_ranks = [&](double seconds, ReduceOp op) {
    const double value = comm.all_reduced(seconds, op, "phase times");
    return op == ReduceOp::sum ? value / comm.size() : value;
  };
  const double reduce_s = over_ranks(sum.reduce / n, ReduceOp::sum);
  const double whole_s = over_ranks(sum.whole / n, ReduceOp::sum);

  Json out;
  out["job"] = "train";
  out["ranks"] = world.size();
  out["threads"] = threads;
  out["batch"] = batch;
  out["rows"] = rows;
  out["steps"] = steps;
  out["samples"] = rates(windows);
  out["step_s"] = {{"median", median(walls)}, {"p95", median(walls, 0.95)}, {"mean", whole_s}, {"first", first.whole}};
  out["phases_s"] = {{"compute", over_ranks(sum.compute / n, ReduceOp::sum)},
                     {"reduce", reduce_s},
                     {"update", over_ranks(sum.update / n, ReduceOp::sum)}};
  for (const SampleUnit& unit : model.units()) out["units_per_s"][unit.name] = unit.per_sample * median(windows);
  out["memory_bytes"] = comm.all_reduced(resident_bytes(), ReduceOp::max, "memory");
  const std::int64_t elements = model.params().flat_size();
  const DType dtype = model.params().dtype();
  const double alone_s =
      comm.size() == 1 ? 0 : visit_float(dtype, [&]<class T>() { return all_reduce_s<T>(comm, elements); });
  out["all_reduce"] = {
      {"bytes", elements * 4},
      {"alone_s", alone_s},
      {"alone_share", whole_s > 0 ? alone_s / whole_s : 0},
      {"share", whole_s > 0 ? reduce_s / whole_s : 0},
      {"share_least_waiting_rank", whole_s > 0 ? over_ranks(sum.reduce / n, ReduceOp::min) / whole_s : 0}};
  out["flops_per_sample"] = model.flops_per_sample();
  out["start_to_first_step_s"] = over_ranks(start_s, ReduceOp::max);
  return out;
}

/// Physical predictions or Jacobians of all rows, each rank its part, as `lockstep predict` computes them.
Json bench_operator(World& world, const BenchOptions& options, const EmulatorModel& model, bool jacobian, int threads) {
  Communicator& comm = world.communicator();
  const EmulatorData& data = model.data();
  const std::int64_t n_in = data.n_in(), n_out = data.n_out();
  const std::int64_t begin = data.rows() * world.rank() / world.size();
  const std::int64_t rows = data.rows() * (world.rank() + 1) / world.size() - begin;
  OperatorOptions operator_options;
  operator_options.threads = threads;
  const EmulatorOperators<float> operators(model.emulator(), operator_options);
  const auto call = jacobian ? OperatorCall::jacobian : OperatorCall::predict;
  std::vector<std::byte> workspace(operators.workspace_bytes(call));
  std::vector<float> result(static_cast<std::size_t>(rows * n_out * (jacobian ? n_in : 1)));
  const StateView<const float> x{data.x.data<float>() + begin * n_in, n_in, 1};
  const auto sweep = [&] {
    if (jacobian) {
      operators.jacobian<float>(rows, x, {}, JacobianUnits::physical, result.data(), workspace.data());
    } else {
      operators.predict<float>(rows, x, {result.data(), n_out, 1}, workspace.data());
    }
  };
  sweep();  // touches the pages
  Stopwatch warm;
  sweep();
  const std::int64_t sweeps = options.steps > 0 ? options.steps : repetitions(comm, warm.seconds(), options.seconds, 5);
  std::vector<double> windows;
  for (std::int64_t i = 0; i < sweeps; ++i) {
    comm.barrier("starting a sweep");
    Stopwatch watch;
    sweep();
    comm.barrier("ending a sweep");
    windows.push_back(static_cast<double>(data.rows()) / watch.seconds());
  }
  Json out;
  out["job"] = jacobian ? "jacobian" : "predict";
  out["ranks"] = world.size();
  out["threads"] = threads;
  out["rows"] = data.rows();
  out["steps"] = sweeps;
  out["samples"] = rates(windows);
  const double weights = static_cast<double>(model.emulator().arch().multiplications());
  const double passes = jacobian ? 1.0 + static_cast<double>(std::min(n_in, n_out)) : 1.0;
  out["flops_per_sample"] = 2 * weights * passes;
  return out;
}

std::string grouped(double value) {
  std::string text = join(static_cast<std::int64_t>(value + 0.5));
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), " ");
  return text;
}

std::string percent(double part) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << 100 * part << " %";
  return text.str();
}

void print(const Json& r) {
  const auto line = [](const char* label, const std::string& text) {
    std::cout << "  " << std::left << std::setw(14) << label << text << "\n";
  };
  const Json& s = r["samples"];
  std::cout << r["job"].get<std::string>() << ", " << r["ranks"] << " ranks x " << r["threads"] << " threads\n";
  line("samples/s", join(grouped(s["per_s"]), "   (", grouped(s["worst"]), " .. ", grouped(s["best"]), " over ",
                         s["windows"].get<int>(), " windows, ", r["steps"].get<std::int64_t>(),
                         r["job"] == "train" ? " steps)" : " sweeps)"));
  if (r.contains("units_per_s")) {
    std::string units;
    for (const auto& [name, per_s] : r["units_per_s"].items())
      units += join(units.empty() ? "" : ", ", grouped(per_s), " ", name, "/s");
    line("that is", units);
  }
  if (r.contains("fma_peak_share"))
    line("of FMA peak", join(percent(r["fma_peak_share"]), "   (", grouped(r["flops_per_sample"]),
                             " flop per sample; peak ", grouped(r["fma_peak_flops"].get<double>() / 1e9), " GFLOP/s)"));
  if (r["job"] != "train") return;
  line("step", join("median ", human_seconds(r["step_s"]["median"]), ", p95 ", human_seconds(r["step_s"]["p95"]),
                    ", of ", r["batch"].get<std::int64_t>(), " samples"));
  line("phases", join("compute ", human_seconds(r["phases_s"]["compute"]), ", reduce ",
                      human_seconds(r["phases_s"]["reduce"]), ", update ", human_seconds(r["phases_s"]["update"])));
  if (r["ranks"] > 1) {
    const Json& a = r["all_reduce"];
    line("all-reduce", join(percent(a["share"]), " of a step with waiting, ", percent(a["share_least_waiting_rank"]),
                            " on the rank that waits least; alone ", human_seconds(a["alone_s"]), " (",
                            percent(a["alone_share"]), ") for ", human_bytes(a["bytes"])));
  }
  line("start",
       join(human_seconds(r["start_to_first_step_s"]), " from the start of the process to the end of the first step"));
}

/// Training steps with larger and larger batches, as far as data and memory go, and the batch that is worth its memory.
void sweep_batch(World& world, RunConfig& config, const BenchOptions& options, Model& model, int threads) {
  constexpr double kTie = 0.97;  // of the best rate: a smaller batch that reaches it is preferred
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / world.node_size();
  std::vector<Json> rows;
  const std::int64_t asked = config.batch.size;
  for (config.batch.size = 8; config.batch.size <= 256; config.batch.size *= 2) {
    if (config.global_batch(world.size()) * config.batch.accumulate > model.size(Split::train)) break;
    if (!rows.empty() && 2 * rows.back()["memory_bytes"].get<double>() > memory) break;
    Json row = bench_train(world, config, options, model, threads);
    row["batch_size"] = config.batch.size;
    rows.push_back(std::move(row));
    if (world.rank() != 0) continue;
    const Json& r = rows.back();
    if (options.json) {
      std::cout << r.dump() << std::endl;
      continue;
    }
    if (rows.size() == 1)
      std::cout << "batch.size (" << config.batch.scope << ")  samples per step  rates, memory of a rank\n";
    std::cout << std::setw(10) << std::right << config.batch.size << std::setw(24) << r["batch"].get<std::int64_t>()
              << "  ";
    if (r.contains("units_per_s")) {
      for (const auto& [name, per_s] : r["units_per_s"].items()) std::cout << grouped(per_s) << " " << name << "/s, ";
    } else {
      std::cout << grouped(r["samples"]["per_s"]) << " samples/s, ";
    }
    std::cout << human_bytes(r["memory_bytes"]) << std::endl;
  }
  config.batch.size = asked;
  world.together("sweeping the batch", [&] {
    require_usage(!rows.empty(), "option sweep_batch: the training split is smaller than the smallest batch, 8",
                  config.batch.scope == "rank" ? " per rank" : "");
  });
  if (world.rank() != 0 || options.json) return;
  double best = 0;
  for (const Json& r : rows) best = std::max(best, r["samples"]["per_s"].get<double>());
  const auto chosen = std::find_if(rows.begin(), rows.end(),
                                   [&](const Json& r) { return r["samples"]["per_s"].get<double>() >= kTie * best; });
  std::cout << "recommended: --batch.size " << (*chosen)["batch_size"] << ", the smallest within 3 % of the best rate, "
            << human_bytes((*chosen)["memory_bytes"]) << " per rank\n";
}

}  // namespace

int run_bench(World& world, const Args& args) {
  RunConfig config;
  BenchOptions bench;
  Options options(
      "lockstep bench", "Measure training, prediction and Jacobians on this allocation",
      "Nothing is written and no run directory is made. With data.path the real data are used, else synthetic "
      "rows made in memory.");
  options.choice("what", &bench.what, "train", {"train", "predict", "jacobian", "all"}, "what to measure");
  options.add("seconds", &bench.seconds, 3, positive, "time to measure each for, unless train.steps is given")
      .unit("s");
  options.add("warmup", &bench.warmup, 20, non_negative, "steps before the measured ones");
  options.add("json", &bench.json, false, "print one JSON object per measurement");
  options.add("sweep_threads", &bench.sweep_threads, false,
              "measure with 1, 2, ... run.threads threads per rank and say which is best");
  options.add("sweep_batch", &bench.sweep_batch, false,
              "measure training with batch.size 8, 16, ... 256 and recommend one: rates and memory");
  options
      .add("predict_ranks", &bench.scaling.ranks, "",
           "what a step would take on so many ranks, such as 2..1024, from messages timed on this allocation")
      .value_name("N..M");
  options.add("predict_latency", &bench.scaling.latency_s, 0, non_negative,
              "with predict_bandwidth: seconds of a short message, instead of timing");
  options.add("predict_bandwidth", &bench.scaling.bytes_per_s, 0, non_negative, "bytes per second of a link");
  options.add("synthetic", &bench.synthetic, false, "synthetic rows even though data.path names a file");
  options.add("rows", &bench.rows, 360000, at_least(10), "synthetic rows");
  options.add("inputs", &bench.inputs, 14, positive, "synthetic input columns");
  options.add("outputs", &bench.outputs, 1, positive, "synthetic output columns");
  options.example("lockstep bench --config configs/emulator-icecolumn.ini --what all", "every rate on one rank");
  options.example("mpirun -n 2 lockstep bench --config configs/emulator-icecolumn.ini --json", "training on two ranks");
  if (!parse(world, options, args, config)) return 0;
  bench.steps = options.given("train.steps") ? config.train.steps : 0;
  const bool synthetic = bench.synthetic || config.data.path.empty();
  if (synthetic) config.data.path = "(synthetic)";
  world.together("checking the configuration", [&] { check(config); });
  const int threads = choose_threads(world, config.run.threads);

  LocalPlacement placement;
  std::unique_ptr<Model> model;
  if (synthetic) {
    world.together("making the data", [&] { model = synthetic_model(config, bench, placement); });
  } else {
    model = load_model(world, config, placement);
  }
  const auto* emulator = dynamic_cast<const EmulatorModel*>(model.get());
  std::vector<std::string> jobs = {bench.what};
  if (bench.what == "all")
    jobs = emulator ? std::vector<std::string>{"train", "predict", "jacobian"} : std::vector<std::string>{"train"};
  world.together("choosing what to measure", [&] {
    require_usage(emulator != nullptr || jobs[0] == "train", "option what = ", bench.what,
                  ": only the emulator has it");
  });

  if (bench.sweep_batch) {
    sweep_batch(world, config, bench, *model, threads);
    return 0;
  }
  for (const std::string& job : jobs) {
    Json best;
    for (int t = bench.sweep_threads ? 1 : threads; t <= threads; ++t) {
      Json result = job == "train" ? bench_train(world, config, bench, *model, t)
                                   : bench_operator(world, bench, *emulator, job == "jacobian", t);
      const double peak = peak_flops(world, job == "train" ? model->params().dtype() : DType::f32, t);
      result["isa"] = ops::name(ops::active_isa());
      result["fma_peak_flops"] = peak;
      if (result["flops_per_sample"] > 0)
        result["fma_peak_share"] =
            result["samples"]["per_s"].get<double>() * result["flops_per_sample"].get<double>() / peak;
      result["peak_memory_bytes"] = world.communicator().all_reduced(peak_memory_bytes(), ReduceOp::max, "peak memory");
      if (world.rank() == 0) {
        if (bench.json) {
          std::cout << result.dump() << std::endl;
        } else {
          print(result);
          std::cout << "  " << std::left << std::setw(14) << "peak memory" << human_bytes(result["peak_memory_bytes"])
                    << " per rank\n"
                    << std::flush;
        }
      }
      // Fewer threads win a tie of 3 %: the cores are free for something else.
      if (best.is_null() || result["samples"]["per_s"] > best["samples"]["per_s"].get<double>() * 1.03) best = result;
    }
    if (job == "train" && !bench.scaling.ranks.empty()) {
      const Json prediction = predict_scaling(world, config, *model, best, bench.scaling);
      if (world.rank() == 0)
        std::cout << (bench.json ? prediction.dump() + "\n" : scaling_text(prediction)) << std::flush;
    }
    if (bench.sweep_threads && world.rank() == 0 && !bench.json)
      std::cout << "best for " << job << ": --threads " << best["threads"] << " (" << grouped(best["samples"]["per_s"])
                << " samples/s)\n";
  }
  return 0;
}

}  // namespace lockstep::apps
