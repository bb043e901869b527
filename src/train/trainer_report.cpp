#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/report/heat_map.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

namespace {

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

/// "rmse 0.1, r2 0.9" of the first metrics.
std::string first_of(const std::vector<Metric>& metrics, std::size_t count) {
  std::string line;
  for (std::size_t i = 0; i < std::min(count, metrics.size()); ++i)
    line += join(i == 0 ? "" : ", ", metrics[i].name, " ", metrics[i].value);
  return line;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Trainer::Impl::facts() {
  const std::string hosts = list_hosts(comm.all_gather_text(world.host(), "host names"));
  const RunConfig& c = config;
  const std::string& mpi = world.mpi_description();
  const std::string ranks = join(world.size(), " on ", world.nodes(), world.nodes() == 1 ? " host" : " hosts", " (",
                                 hosts, "), ", threads, threads == 1 ? " thread each" : " threads each",
                                 world.size() > 1 && !c.threads_are_ranks() ? ", " + mpi.substr(0, mpi.find(',')) : "");
  const Device place = model.params().device();
  const std::string device = join(
      name(place), " (", place.is_cuda() ? describe_gpu(place.index) : ops::name(ops::active_isa()), "), ",
      c.run.precision, ", gradients by ", program->backend(), c.dist.compress == "none" ? "" : " as " + c.dist.compress,
      c.threads_are_ranks()     ? ", dp: one process, a thread for each GPU"
      : c.dist.parallel == "dp" ? join(", dp with ", c.dist.replicas, " replicas")
                                : "",
      c.run.reproducible ? join(", reproducible over ", c.dist.shards, " shards") : "");
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
  for (auto& line : program->facts()) lines.push_back(std::move(line));
  lines.insert(lines.end(),
               {{"learning rate", join(exact(c.scaled_lr(world.size())), scaled, ", ", c.optim.name, ", schedule ",
                                       c.schedule.name, schedule_notes())},
                {"parameters", join(model.params().count(), " in ", model.params().all().size(), " arrays")},
                {"data", join(c.data.path, ": ", model.size(Split::train), " training, ", on_test ? 0 : validation,
                              " validation, ", model.size(Split::test), " test samples")}});
  if (on_test) {
    lines.emplace_back("validation",
                       join("the data set has no validation samples; ", validation, " of the ", model.size(Split::test),
                            " test samples choose the best weights, so the test metrics are optimistic"));
  }
  lines.emplace_back("steps", join(program->steps_per_epoch(), " per epoch", end));
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
  // Of a resumed run: the rate in its last record, and what this configuration gives for the same step.
  const auto last = [&](const char* series) {
    const std::vector<double> known = state.history.known(series);
    return known.empty() ? 0 : known.back();
  };
  const auto step = static_cast<std::int64_t>(last("step"));
  if (step == 0) return notes;
  // The record is of the end of an epoch, or of an evaluation within one.
  const auto completed = static_cast<std::int64_t>(std::ceil(last("epoch"))) - 1;
  const double was = last("lr"), now = schedule.lr(step - 1, completed);
  if (was == now) return notes;
  return notes + join("; the cosine now spans ", by_steps ? last_step() : config.train.epochs,
                      by_steps ? " steps" : " epochs", ", which moves the rate of step ", step, " from ", exact(was),
                      " to ", exact(now), "; set schedule.total to keep its length");
}

std::pair<int, double> Trainer::Impl::slowest_rank() {
  if (world.size() == 1) return {-1, 0};
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()), sizeof(double));
  std::vector<double> seconds(sizes.size());
  comm.all_gather_known(std::as_bytes(std::span(&interval.compute, 1)), sizes,
                        std::as_writable_bytes(std::span(seconds)), "seconds of computation");
  const auto most = std::max_element(seconds.begin(), seconds.end());
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  return {static_cast<int>(most - seconds.begin()), mean > 0 ? *most / mean - 1 : 0};
}

void Trainer::Impl::log_interval() {
  settle_steps();
  require_run_directory();
  std::vector<Metric> metrics = program->interval_metrics();
  if (interval.scaled) {
    metrics.insert(metrics.begin(),
                   {{"loss_scale", state.loss_scale.value}, {"skipped_steps", static_cast<double>(interval.skipped)}});
  }
  const auto [slowest, slower_by] = slowest_rank();
  if (interval.steps > 0)
    metrics.insert(metrics.begin(), {"loss_unweighted", interval.batch_means / static_cast<double>(interval.steps)});
  // KGAT's steps on triples have a loss of their own, among the metrics.
  if ((interval.weight > 0 || !metrics.empty()) && log->writes()) {
    const double seconds = interval.watch.seconds();
    log->record(StepRecord{.step = state.step,
                           .epoch = epochs_done(),
                           .loss = interval.weight > 0 ? std::optional(interval.loss / interval.weight) : std::nullopt,
                           .lr = interval.lr,
                           .grad_norm = interval.steps > 0 ? interval.norm : -1,
                           .samples_per_s = rate(interval.samples, seconds),
                           .seconds = seconds,
                           .phases = {{"forward_backward", interval.compute},
                                      {"reduce", interval.reduce},
                                      {"update", interval.update},
                                      {"evaluate", interval.evaluate},
                                      {"checkpoint", interval.checkpoint},
                                      {"proof", interval.proof}},
                           .slowest_rank = slowest,
                           .slowest_by = slower_by,
                           .metrics = std::move(metrics)});
  }
  interval = {};
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

bool Trainer::Impl::report_final(const std::string& whose_weights) {
  for (const Split split : {Split::validation, Split::test}) {
    if (model.size(split) == 0 || config.eval.final == "none") continue;
    const Evaluation found = evaluate_average(split, 0);
    if (found.metrics.empty()) return false;
    const std::vector<Metric>& metrics = found.metrics;
    const char* called = split == Split::validation && model.validates_on_test() ? "validation (= test)" : name(split);
    const std::vector<BaselineMetrics> baselines = evaluate_baselines(comm, model, split, threads, signals);
    ReportTable table{.title = join(called, " samples, ", whose_weights), .columns = {"metric", "value"}, .rows = {}};
    for (const BaselineMetrics& b : baselines) table.columns.push_back(b.name);
    for (const Metric& m : metrics) {
      std::vector<std::string>& row = table.rows.emplace_back(std::vector{m.name, join(m.value)});
      for (const BaselineMetrics& b : baselines) {
        const Metric* found = b.find(m.name);
        row.push_back(found == nullptr ? "" : join(found->value));
      }
    }
    for (const MetricTable& t : found.tables) log->add(ReportPicture{table.title + ": " + t.name, heat_map_svg(t)});
    log::info(table.title, ": ", first_of(metrics, 8));
    for (const BaselineMetrics& b : baselines)
      log::info("compare: ", b.name, ", ", called, " samples: ", first_of(b.metrics, 2));
    log->add(std::move(table));
    // A run that ends within its first epoch has no other record of a validation.
    if (split == Split::test || state.best_epoch < 0)
      log_evaluation(split, found, 0, false, state.best_epoch < 0 ? "final" : "best");
  }
  require_run_directory();
  if (log->writes()) {
    auto [title, svg] = model.picture();
    if (!svg.empty()) log->add(ReportPicture{std::move(title), std::move(svg)});
  }
  if (std::filesystem::exists(folder->best_file())) {
    log->made(folder->best_file(), join("weights of the best evaluation, after epoch ", state.best_epoch));
  }
  log->made(folder->final_file(), "final weights, with everything that a run needs to continue");
  log->finish(join("finished after ", state.epoch, " epochs, ", state.step, " steps: ", state.stop_reason));
  return true;
}

}  // namespace lockstep
