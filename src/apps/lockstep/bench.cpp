#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/lockstep/bench_emulator.hpp"
#include "apps/lockstep/bench_scaling.hpp"
#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/ledger_report.hpp"
#include "apps/lockstep/measure_step.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/ops/fma_peak.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/train/profiler.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string what;
  StepBudget budget;
  bool json = false, sweep_threads = false, sweep_batch = false, synthetic = false;
  std::string profile;  ///< file of the timeline
  SyntheticRows rows;
  ScalingQuestion scaling;
};

double peak_flops(World& world, DType dtype, int threads) {
  world.communicator().barrier("measuring the peak");
  return world.communicator().all_reduced(ops::measure_fma_peak(dtype, threads), ReduceOp::sum, "peak");
}

/// The rates of all windows: their median, and the extremes as its uncertainty.
Json rates(const std::vector<double>& per_s) {
  return {{"per_s", quantile(per_s)},
          {"best", *std::max_element(per_s.begin(), per_s.end())},
          {"worst", *std::min_element(per_s.begin(), per_s.end())},
          {"windows", per_s.size()}};
}

Json to_json(const StepMeasurement& m, const Task& model) {
  Json out;
  out["job"] = "train";
  out["ranks"] = m.ranks;
  out["threads"] = m.threads;
  out["batch"] = m.batch;
  out["rows"] = m.rows;
  out["steps"] = m.steps;
  out["samples"] = rates(m.samples_per_s);
  out["step_s"] = {{"median", m.median_s}, {"p95", m.p95_s}, {"mean", m.mean_s}, {"first", m.first_s}};
  out["phases_s"] = {{"compute", m.compute_s}, {"reduce", m.reduce_s}, {"update", m.update_s}};
  const SampleWork work = model.work();
  for (const SampleUnit& unit : work.units) out["units_per_s"][unit.name] = unit.per_sample * quantile(m.samples_per_s);
  out["memory_bytes"] = m.memory_bytes;
  const bool on_gpu = m.gpu_memory.total > 0;
  Json& by_use = out[on_gpu ? "gpu_memory_bytes" : "host_memory_bytes"];
  for (std::size_t use = 0; use < kMemoryUses; ++use)
    by_use[name(static_cast<MemoryUse>(use))] = on_gpu ? m.gpu_memory.used[use] : m.host_memory[use];
  out["all_reduce"] = {
      {"bytes", m.gradient_bytes},      {"alone_s", m.alone_s},     {"alone_share", m.alone_s / m.mean_s},
      {"share", m.reduce_s / m.mean_s}, {"exposed_s", m.exposed_s}, {"exposed_share", m.exposed_s / m.mean_s}};
  out["flops_per_sample"] = work.flops;
  out["start_to_first_step_s"] = m.start_s;
  return out;
}

Json bench_operator(World& world, const BenchOptions& options, const EmulatorTask& model, bool jacobian, int threads) {
  const auto call = jacobian ? OperatorCall::jacobian : OperatorCall::predict;
  const OperatorMeasurement m =
      measure_operator(world, model, call, threads, options.budget.steps, options.budget.seconds);
  Json out;
  out["job"] = jacobian ? "jacobian" : "predict";
  out["ranks"] = world.size();
  out["threads"] = threads;
  out["rows"] = model.data().rows();
  out["steps"] = m.samples_per_s.size();
  out["samples"] = rates(m.samples_per_s);
  out["flops_per_sample"] = m.flops_per_sample;
  return out;
}

std::string grouped(double value) {
  std::string text = printed("%.0f", value);
  for (std::ptrdiff_t at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), " ");
  return text;
}

std::string percent(double part) { return printed("%.1f %%", 100 * part); }

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
    line("all-reduce", join(percent(a["share"]), " of a step with waiting for other ranks, ",
                            percent(a["exposed_share"]), " without; alone ", human_seconds(a["alone_s"]), " (",
                            percent(a["alone_share"]), ") for ", human_bytes(a["bytes"])));
  }
  if (r.contains("gpu_memory_bytes")) {
    std::string uses;
    for (const auto& [use, bytes] : r["gpu_memory_bytes"].items())
      if (bytes.get<double>() > 0) uses += join(uses.empty() ? "" : ", ", use, " ", human_bytes(bytes));
    line("GPU memory", uses);
  }
  line("start",
       join(human_seconds(r["start_to_first_step_s"]), " from the start of the process to the end of the first step"));
}

/// errors  usage: the ranks of a node cannot hold the synthetic rows and the results
void require_memory_for_rows(const World& world, const BenchOptions& bench) {
  const SyntheticRows& size = bench.rows;
  const auto rows = static_cast<double>(size.rows), in = static_cast<double>(size.inputs),
             out = static_cast<double>(size.outputs);
  const double results = bench.what == "train" ? 0 : bench.what == "predict" ? out : in * out;
  const double values = rows * (in + out + 1 + results / world.size()) * world.node_size();
  require_memory_for(
      values * sizeof(float),
      join("generating the data: ", size.rows, " rows of ", size.inputs, " inputs and ", size.outputs, " outputs need"),
      "lower rows, inputs or outputs, or start fewer ranks");
}

/// Measures training with growing batches while data and memory allow, and recommends a batch size.
void sweep_batch(World& world, RunConfig& config, const BenchOptions& options, Task& model, int threads) {
  constexpr double kTie = 0.97;  // the smallest batch with this fraction of the best rate is recommended
  const double memory =
      world.communicator().all_reduced(memory_limit().bytes / world.node_size(), ReduceOp::min, "memory");
  std::vector<Json> rows;
  const bool per_rank = config.batch.per_rank > 0;
  std::int64_t& size = per_rank ? config.batch.per_rank : config.batch.size;
  const char* key = per_rank ? "batch.per_rank" : "batch.size";
  const std::int64_t asked = size;
  for (size = 8; size <= 256; size *= 2) {
    if (config.global_batch(world.size()) * config.batch.accumulate > model.size(Split::train)) break;
    if (!rows.empty() && 2 * rows.back()["memory_bytes"].get<double>() > memory) break;
    Json row = to_json(measure_step(world, config, model, threads, options.budget), model);
    row["batch_size"] = size;
    rows.push_back(std::move(row));
    if (world.rank() != 0) continue;
    const Json& r = rows.back();
    if (options.json) {
      std::cout << json_text(r) << std::endl;
      continue;
    }
    if (rows.size() == 1)
      std::cout << std::setw(14) << std::right << key << "  samples per step  rates, memory of a rank\n";
    std::cout << std::setw(14) << std::right << size << std::setw(18) << r["batch"].get<std::int64_t>() << "  ";
    if (r.contains("units_per_s")) {
      for (const auto& [name, per_s] : r["units_per_s"].items()) std::cout << grouped(per_s) << " " << name << "/s, ";
    } else {
      std::cout << grouped(r["samples"]["per_s"]) << " samples/s, ";
    }
    std::cout << human_bytes(r["memory_bytes"]) << std::endl;
  }
  size = asked;
  world.together("sweeping the batch", [&] {
    require_usage(!rows.empty(), "option sweep_batch: the training split is smaller than the smallest batch, 8",
                  per_rank ? " per rank" : "");
  });
  if (world.rank() != 0 || options.json) return;
  double best = 0;
  for (const Json& r : rows) best = std::max(best, r["samples"]["per_s"].get<double>());
  const auto chosen = std::find_if(rows.begin(), rows.end(),
                                   [&](const Json& r) { return r["samples"]["per_s"].get<double>() >= kTie * best; });
  std::cout << "recommended: --" << key << " " << (*chosen)["batch_size"]
            << ", the smallest within 3 % of the best rate, " << human_bytes((*chosen)["memory_bytes"])
            << " per rank\n";
}

/// The measurements on one rank. sweep_batch() changes the configuration temporarily.
int bench_jobs(World& world, RunConfig& config, const BenchOptions& bench) {
  const int threads = prepare_cpu(world, config, BestIsa::fastest);

  LocalDataMemory data_memory;
  std::unique_ptr<Task> model;
  if (bench.synthetic) {
    world.together("generating the data", [&] {
      require_memory_for_rows(world, bench);
      model = synthetic_model(config, bench.rows, data_memory);
      place_task(world, config, *model);
    });
  } else {
    model = load_task(world, config, data_memory);
  }
  const auto* emulator = config.model_kind == "emulator" ? &own<EmulatorTask>(*model) : nullptr;
  std::vector<std::string> jobs = {bench.what};
  if (bench.what == "all")
    jobs = emulator ? std::vector<std::string>{"train", "predict", "jacobian"} : std::vector<std::string>{"train"};
  world.together("choosing what to measure", [&] {
    require_usage(emulator != nullptr || jobs[0] == "train", "option what = ", bench.what, ": only for the emulator");
  });

  if (bench.budget.ledger) {
    const StepMeasurement step = measure_step(world, config, *model, threads, bench.budget);
    if (world.rank() == 0) {
      const Json report = ledger_json(step.ledger, step.steps);
      std::cout << (bench.json ? json_text(report) + "\n" : ledger_text(report)) << std::flush;
    }
    return 0;
  }
  if (bench.sweep_batch) {
    sweep_batch(world, config, bench, *model, threads);
    return 0;
  }
  for (const std::string& job : jobs) {
    Json best;
    StepMeasurement best_step;
    for (int t = bench.sweep_threads ? 1 : threads; t <= threads; ++t) {
      StepMeasurement step;
      Json result;
      if (job == "train") {
        step = measure_step(world, config, *model, t, bench.budget);
        result = to_json(step, *model);
      } else {
        result = bench_operator(world, bench, *emulator, job == "jacobian", t);
      }
      const double peak = peak_flops(world, job == "train" ? model->params().dtype() : DType::f32, t);
      result["isa"] = name(ops::active_isa());
      result["fma_peak_flops"] = peak;
      if (result["flops_per_sample"] > 0)
        result["fma_peak_share"] =
            result["samples"]["per_s"].get<double>() * result["flops_per_sample"].get<double>() / peak;
      result["peak_memory_bytes"] = world.communicator().all_reduced(peak_memory_bytes(), ReduceOp::max, "peak memory");
      if (world.rank() == 0) {
        if (bench.json) {
          std::cout << json_text(result) << std::endl;
        } else {
          print(result);
          std::cout << "  " << std::left << std::setw(14) << "peak memory" << human_bytes(result["peak_memory_bytes"])
                    << " per rank\n"
                    << std::flush;
        }
        if (step.recorded_s > 0) {
          report_timeline(step.timeline, bench.profile);
          log::info("a recorded step takes ", human_seconds(step.recorded_s), ", one that is not ",
                    human_seconds(step.median_s), " (medians)");
        }
      }
      // More threads must be 3 % faster to win.
      if (best.is_null() || result["samples"]["per_s"] > best["samples"]["per_s"].get<double>() * 1.03) {
        best = result;
        best_step = step;
      }
    }
    if (job == "train" && !bench.scaling.ranks.empty()) {
      const Json prediction = predict_scaling(world, config, *model, best_step, bench.scaling);
      if (world.rank() == 0)
        std::cout << (bench.json ? json_text(prediction) + "\n" : scaling_text(prediction)) << std::flush;
    }
    if (bench.sweep_threads && world.rank() == 0 && !bench.json)
      std::cout << "best for " << job << ": --threads " << best["threads"] << " (" << grouped(best["samples"]["per_s"])
                << " samples/s)\n";
  }
  return 0;
}

}  // namespace

int run_bench(World& world, const Args& args) {
  RunConfig config;
  BenchOptions bench;
  Options options("lockstep bench", "Measure training, prediction and Jacobians on this allocation",
                  "The command creates no run directory, and writes no file except that of --profile. It uses the data "
                  "set of data.path, or synthetic rows if there is none.");
  options.choice("what", &bench.what, "train", {"train", "predict", "jacobian", "all"}, "what to measure");
  options.add("seconds", &bench.budget.seconds, 3, positive, "duration of each measurement, unless train.steps is set")
      .unit("s");
  options.add("warmup", &bench.budget.warmup, 20, non_negative, "steps before the measured ones");
  options.add(
      "from_step", &bench.budget.from_step, 0, non_negative,
      "first measured step, counted within an epoch; an epoch of kgat has steps on interactions, then on triples");
  options.add("json", &bench.json, false, "print one JSON object per measurement");
  options.add("sweep-threads", &bench.sweep_threads, false,
              "measure with 1, 2, ... run.threads threads per rank and recommend the best number");
  options.add("sweep-batch", &bench.sweep_batch, false,
              "measure rate and memory of training with batch.size 8, 16, ... 256 and recommend one");
  options.add("predict-ranks=N..M", &bench.scaling.ranks, "",
              "predict the time of a step on these numbers of ranks, such as 2..1024, from messages timed on this "
              "allocation");
  options.add("predict-latency", &bench.scaling.latency_s, 0, non_negative,
              "with predict_bandwidth: time of a short message in seconds, instead of timing messages");
  options.add("predict-bandwidth", &bench.scaling.bytes_per_s, 0, non_negative,
              "bandwidth of a link in bytes per second");
  options.add(
      "profile=FILE.json", &bench.profile, "",
      "after the measurement, record 10 more training steps of all ranks and threads and write their timeline to "
      "this file; see docs/profiling.md");
  options.add("ledger", &bench.budget.ledger, false,
              "count what a training step makes the GPU do; only on the stand-in of the tests (make cuda-host); see "
              "docs/design/gpu-ledger.md");
  options.add("synthetic", &bench.synthetic, false, "use synthetic rows even if data.path is set");
  options.add("rows", &bench.rows.rows, 360000, between(10, 1e9), "number of synthetic rows");
  options.add("inputs", &bench.rows.inputs, 14, between(1, 1e6), "number of synthetic input columns");
  options.add("outputs", &bench.rows.outputs, 1, between(1, 1e6), "number of synthetic output columns");
  options.example("lockstep bench --config configs/emulator-icecolumn.ini --what all", "all rates on one rank");
  options.example("mpirun -n 2 lockstep bench --config configs/emulator-icecolumn.ini --json", "training on two ranks");
  if (!parse(world, options, args, config)) return 0;
  bench.budget.steps = options.given("train.steps") ? config.train.steps : 0;
  if (!bench.profile.empty()) bench.budget.profiled = 10;
  if (bench.budget.ledger) {
    if (bench.budget.steps == 0) bench.budget.steps = 2;
    if (!options.given("warmup")) bench.budget.warmup = 3;
  }
  bench.synthetic = bench.synthetic || config.data.path.empty();
  if (bench.synthetic) config.data.path = "(synthetic)";
  world.together("checking the configuration", [&] {
    check(config);
    require_usage(
        bench.profile.empty() ||
            (!bench.sweep_batch && !bench.sweep_threads && bench.what != "predict" && bench.what != "jacobian"),
        "option profile = ", bench.profile,
        ": it records one measurement of training; omit sweep_threads and sweep_batch, and choose --what train or all");
    require_usage(!bench.budget.ledger || (bench.what == "train" && bench.profile.empty() && !bench.sweep_batch &&
                                           !bench.sweep_threads && bench.scaling.ranks.empty()),
                  "option ledger: it counts steps of training; omit the other measurements");
    require_usage(!bench.budget.ledger || config.run.device == "cuda",
                  "option ledger: it counts the work of a GPU; add --device cuda");
    require_usage(!bench.budget.ledger || why_no_ledger().empty(), "option ledger: ", why_no_ledger());
    if (!bench.profile.empty() && world.rank() == 0) require_writable(bench.profile, {config.data.path});
    require_usage(!bench.sweep_batch || !config.threads_are_ranks(),
                  "option sweep_batch: not with dist.parallel = dp on GPUs; use ddp with one process per GPU");
  });
  return on_each_gpu(world, config, [&](World& rank) { return bench_jobs(rank, config, bench); });
}

}  // namespace lockstep::apps
