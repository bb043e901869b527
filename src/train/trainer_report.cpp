#include <algorithm>
#include <cmath>
#include <span>

#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/report/heat_map.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/step/scaling.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

namespace {

PhaseSeconds sum(const PhaseSeconds& a, PhaseSeconds b) {
  for (std::size_t i = 0; i < a.size(); ++i) b[i].second += a[i].second;
  return b;
}

/// Seconds of steps before, and share of communication above which, the log advises fewer ranks.
constexpr double kJudged = 60, kMuch = 0.5;

double rate(std::int64_t samples, double seconds) { return static_cast<double>(samples) / std::max(seconds, 1e-9); }

/// The host names in order, at most kShown of them.
std::string list_hosts(std::vector<std::string> hosts) {
  constexpr std::size_t kShown = 8;
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  std::string list;
  for (std::size_t i = 0; i < std::min(hosts.size(), kShown); ++i) list += (i == 0 ? "" : " ") + hosts[i];
  return hosts.size() > kShown ? list + join(" and ", hosts.size() - kShown, " more") : list;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Trainer::Impl::facts() {
  const std::string hosts = list_hosts(comm.all_gather_text(world.host(), "host names"));
  const RunConfig& c = config;
  ProgramFacts of_program = program->facts();
  sends_buckets = of_program.sends_buckets;
  const std::string& mpi = world.mpi_description();
  const std::string ranks = join(world.size(), " on ", world.nodes(), world.nodes() == 1 ? " host" : " hosts", " (",
                                 hosts, "), ", threads, threads == 1 ? " thread each" : " threads each",
                                 world.size() > 1 && !c.threads_are_ranks() ? ", " + mpi.substr(0, mpi.find(',')) : "");
  const Device place = model.params().device();
  const std::string why = c.run.precision != "auto" ? ""
                          : c.run.device == "cpu"   ? " (auto: that of CPUs)"
                          : is_half(c.storage())    ? join(" (auto: ", c.model_kind, " is published with it)")
                                                    : " (auto)";
  const std::string device =
      join(name(place), " (", place.is_cuda() ? describe_gpu(place.index) : name(ops::active_isa()), "), precision ",
           c.precision(), why, ", gradients by ", of_program.backend,
           c.dist.compress == "none" ? "" : " as " + c.dist.compress,
           c.threads_are_ranks()     ? ", dp: one process, a thread for each GPU"
           : c.dist.parallel == "dp" ? join(", dp with ", c.dist.replicas, " replicas")
                                     : "",
           c.run.reproducible
               ? join(", reproducible over ", of_program.shards > 0 ? of_program.shards : c.shards(), " shards")
               : "");
  const std::string scaled = c.optim.scale_lr == "none"
                                 ? ""
                                 : join(", optim.lr ", exact(c.optim.lr), " scaled by scale_lr = ", c.optim.scale_lr);
  const std::string end = last_step() < std::int64_t{1} << 40 ? join(", ", last_step(), " in all") : "";
  const bool on_test = model.validates_on_test();
  const std::int64_t validation = model.size(Split::validation);
  std::vector<std::pair<std::string, std::string>> lines = {{"ranks", ranks}, {"device", device}};
  if (c.keeps_scale_of_first_start(world.size())) {
    lines.emplace_back(
        "resumed", join("batch and learning rate stay those of the first start, on ", c.first_devices,
                        c.first_devices == 1 ? " device" : " devices", "; this start has ", c.devices(world.size())));
  }
  for (auto& line : of_program.lines) lines.push_back(std::move(line));
  for (auto& line : model.facts()) lines.push_back(std::move(line));
  lines.insert(lines.end(),
               {{"learning rate", join(exact(c.scaled_lr(world.size())), scaled, ", ", c.optim.name, ", schedule ",
                                       c.schedule.name, schedule_notes())},
                {"parameters", join(model.params().count(), " in ", model.params().all().size(), " arrays")},
                {"data", join(c.data.path, ": ", model.size(Split::train), " training, ", on_test ? 0 : validation,
                              " validation, ", model.size(Split::test), " test samples")}});
  for (const auto& [split, most] : {std::pair{Split::validation, c.eval.max_samples}, {Split::test, std::int64_t{0}}})
    if (model.evaluates(split)) lines.emplace_back("evaluation", protocol_of(model, split, most));
  if (on_test) {
    lines.emplace_back("validation",
                       join("the data set has no validation samples; ", validation, " of the ", model.size(Split::test),
                            " test samples choose the best weights, so the test metrics are optimistic"));
  }
  lines.emplace_back("steps", join(program->epoch().steps, " per epoch", end));
  return lines;
}

std::string Trainer::Impl::schedule_notes() const {
  const ScheduleOptions& s = config.schedule;
  const bool by_steps = s.unit == "step";
  std::string notes;
  if (const std::int64_t run = by_steps ? last_step() : config.train.epochs; s.warmup >= run && s.warmup > 1)
    notes += join("; the run ends within the warm-up of ", s.warmup, by_steps ? " steps" : " epochs", ", at ",
                  printed("%.3g", 100.0 * static_cast<double>(run) / static_cast<double>(s.warmup)), " % of this rate");
  if (s.name != "cosine" || s.total > 0) return notes;
  // In a resumed run, compare the rate in its last record with the rate of this configuration for the same step.
  const auto last = [&](const char* series) {
    const std::vector<double> known = state.history.known(series);
    return known.empty() ? 0 : known.back();
  };
  const auto step = static_cast<std::int64_t>(last("step"));
  if (step == 0) return notes;
  // The record was written at the end of an epoch, or at an evaluation within an epoch.
  const auto completed = static_cast<std::int64_t>(std::ceil(last("epoch"))) - 1;
  const double was = last("lr"), now = schedule.lr(step - 1, completed);
  if (was == now) return notes;
  return notes + join("; the cosine now spans ", by_steps ? last_step() : config.train.epochs,
                      by_steps ? " steps" : " epochs", ", which moves the rate of step ", step, " from ", exact(was),
                      " to ", exact(now), "; set schedule.total to keep its length");
}

void Trainer::Impl::open_monitors() {
  const Device gpu = model.params().device();
  if (!gpu.is_cuda() || replays) return;
  const std::vector<std::string> gpus =
      comm.all_gather_text(world.host() + " " + gpu_address(gpu.index), "GPUs of the ranks");
  const auto mine = gpus.begin() + world.rank();
  if (std::find(gpus.begin(), mine, *mine) == mine) monitor.emplace(gpu);
  std::vector<std::string> failures = comm.all_gather_text(monitor ? monitor->failure() : "", "monitors of the GPUs");
  std::erase(failures, "");
  if (!failures.empty())
    log::info("utilisation, memory, power and clock of ",
              failures.size() == 1 ? "a GPU" : join(failures.size(), " GPUs"), " are not recorded: ", failures.front());
  if (monitor && !monitor->failure().empty()) monitor.reset();
}

GpuReading Trainer::Impl::read_gpu() {
  if (!monitor) return {};
  const GpuReading reading = monitor->read();
  if (!monitor->failure().empty()) {
    log::warning(monitor->failure(), "; this GPU is not recorded from step ", state.step, " on");
    monitor.reset();
  }
  return reading;
}

void Trainer::Impl::gather(StepRecord& record, const GpuReading& gpu) {
  struct OfRank {
    double compute;
    GpuReading gpu;
  };
  std::vector<OfRank> all(world.size());
  all[world.rank()] = {interval.compute, gpu};
  if (world.size() > 1) {
    const OfRank mine = all[world.rank()];
    comm.all_gather_known(std::as_bytes(std::span(&mine, 1)),
                          std::vector<std::int64_t>(all.size(), std::int64_t{sizeof mine}),
                          std::as_writable_bytes(std::span(all)), "seconds and GPUs of the ranks");
    std::vector<double> seconds;
    for (const OfRank& rank : all) seconds.push_back(rank.compute);
    name_slowest(record, seconds);
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    GpuValues values{.rank = static_cast<int>(rank), .values = {}};
    for (std::size_t i = 0; i < GpuReading::kNames.size(); ++i)
      if (const double value = all[rank].gpu.values[i]; value >= 0)
        values.values.push_back({GpuReading::kNames[i], value});
    if (!values.values.empty()) record.gpus.push_back(std::move(values));
  }
}

void Trainer::Impl::log_interval() {
  const GpuReading gpu = read_gpu();  // while the GPU still works on the last step
  settle(UpTo::outcomes);
  require_run_directory();
  std::vector<Metric> metrics = program->interval_metrics();
  if (interval.scaled)
    metrics.insert(metrics.begin(),
                   {{"loss_scale", state.loss_scale.value}, {"skipped_steps", static_cast<double>(interval.skipped)}});
  if (interval.steps > 0)
    metrics.insert(metrics.begin(), {"loss_unweighted", interval.batch_means / static_cast<double>(interval.steps)});
  StepRecord record{.step = state.step,
                    .epoch = epochs_done(),
                    .loss = interval.weight > 0 ? std::optional(interval.loss / interval.weight) : std::nullopt,
                    .lr = interval.lr,
                    .grad_norm = interval.steps > 0 ? interval.norm : -1,
                    .phases = interval.phases(),
                    .ranks = world.size(),
                    .metrics = std::move(metrics)};
  gather(record, gpu);
  record.seconds = interval.watch.seconds();
  record.samples_per_s = rate(interval.samples, record.seconds);
  // KGAT's steps on triples have a loss of their own, among the metrics.
  if (record.loss || !record.metrics.empty()) log->record(std::move(record));
  logged = sum(logged, interval.phases());
  interval = {};
  // Phases 0 to 2 are compute, reduce and update.
  const double summing = logged[1].second, steps = logged[0].second + summing + logged[2].second;
  if (world.size() == 1 || steps < kJudged || summing < kMuch * steps || std::exchange(told_of_waiting, true)) return;
  log::info("summing gradients, with the wait for the slowest rank, takes ", printed("%.0f %%", 100 * summing / steps),
            " of a step: ", world.nodes() > 1 ? "fewer nodes" : "fewer ranks",
            " or a larger batch use the processors better; lockstep comm-test --config FILE measures the parts");
}

/// How many nodes, or ranks of one node, pay by the measured phases of this start; "" if it cannot say.
std::string Trainer::Impl::paying(const PhaseSeconds& times) const {
  if (world.size() == 1 || !sends_buckets || model.params().device().is_cuda() || steps_here == 0) return "";
  const bool nodes = world.nodes() > 1;
  const std::int64_t members = nodes ? world.nodes() : world.size();
  const auto each = [&](std::size_t phase) { return times[phase].second / static_cast<double>(steps_here); };
  LinkCost cost;
  StepWork work = work_of_wait(each(0), each(1), each(2), world.size(), members, cost);
  work.fixed_global_batch = config.batch.per_rank == 0;
  return paying_text(work, cost, nodes ? "node" : "rank", members);
}

void Trainer::Impl::report_time() {
  const double wall = session.seconds();
  PhaseSeconds times = sum(logged, interval.phases());
  double rest = wall;
  for (const auto& [phase, seconds] : times) rest -= seconds;
  times.emplace_back("rest", rest);
  ReportTable table{.title = "Time of this start by phase", .columns = {"phase", "time", "share"}, .rows = {}};
  std::string line;
  for (const auto& [phase, seconds] : times) {
    const std::string share = printed("%.1f %%", 100 * seconds / wall);
    table.rows.push_back({phase, human_seconds(seconds), share});
    if (share != "0.0 %") line += (line.empty() ? ": " : ", ") + phase + " " + share;
  }
  log->add(std::move(table));
  log::info("training took ", human_seconds(wall), line);
  if (const std::string text = paying(times); !text.empty()) log::info(text);
  const double memory = comm.all_reduced(peak_memory_bytes(), ReduceOp::max, "peak memory");
  log::info("steps: ", printed("%.3g", rate(steps_here, wall)),
            " per second; peak memory of a rank: ", human_bytes(memory),
            "; node-hours: ", printed("%.2g", wall * world.nodes() / 3600));
}

void Trainer::Impl::log_evaluation(Split split, const Evaluation& found, std::int64_t most_samples, bool best,
                                   const std::string& weights) {
  EvalRecord record =
      record_of(model, config.data.path, split, most_samples, found.metrics, found.tables, found.seconds);
  record.step = state.step;
  record.epoch = epochs_done();
  record.best = best;
  record.weights = weights;
  log->record(std::move(record));
}

std::string Trainer::Impl::best_moment() const {
  const bool within = state.best_step >= 0 && state.best_step != state.best_epoch * program->epoch().steps;
  return within ? join("step ", state.best_step) : join("epoch ", state.best_epoch);
}

bool Trainer::Impl::report_final(const std::string& whose_weights) {
  for (const Split split : {Split::validation, Split::test}) {
    if (model.size(split) == 0 || config.eval.final == "none") continue;
    const Evaluation found = evaluate_average(split, 0);
    if (found.metrics.empty()) return false;
    const std::vector<Metric>& metrics = found.metrics;
    const char* called = split == Split::validation && model.validates_on_test() ? "validation (= test)" : name(split);
    profile::Phase phase("evaluate", interval.evaluate);
    const std::vector<BaselineMetrics> baselines = evaluate_baselines(comm, model, split, threads, signals);
    phase.end();
    ReportTable table{.title = join(called, " samples, ", whose_weights), .columns = {"metric", "value"}, .rows = {}};
    for (const BaselineMetrics& b : baselines) table.columns.push_back(b.name);
    for (const Metric& m : metrics) {
      std::vector<std::string>& row = table.rows.emplace_back(std::vector{m.name, join(m.value)});
      for (const BaselineMetrics& b : baselines) {
        const Metric* found = find_metric(b.metrics, m.name);
        row.push_back(found == nullptr ? "" : join(found->value));
      }
    }
    for (const MetricTable& t : found.tables) log->add(ReportPicture{table.title + ": " + t.name, heat_map_svg(t)});
    ReportTable first = table;
    if (log::detail() != LogDetail::all) first.rows.resize(std::min<std::size_t>(first.rows.size(), 6));
    log::info(table.title, ":", table_text(first));
    log->add(std::move(table));
    // A run without a finite value of eval.best has no best weights.
    if (split == Split::test || state.best_epoch < 0)
      log_evaluation(split, found, 0, false, state.best_epoch < 0 ? "final" : "best");
  }
  require_run_directory();
  if (log->writes() && !config.is_trial()) {
    auto [title, svg] = model.picture();
    if (!svg.empty()) log->add(ReportPicture{std::move(title), std::move(svg)});
  }
  if (std::filesystem::exists(folder->best_file()))
    log->made(folder->best_file(), join("weights of the best evaluation, after ", best_moment()));
  report_time();
  if (!config.is_trial())
    log->made(folder->final_file(), "final weights, with everything that a run needs to continue");
  log->finish(join("finished after ", state.epoch, " epochs, ", state.step, " steps: ", state.stop_reason));
  return true;
}

}  // namespace lockstep
