#include "lockstep/report/run_log.hpp"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/heat_map.hpp"
#include "lockstep/report/progress_line.hpp"
#include "lockstep/report/run_records.hpp"
#include "report/html_report.hpp"
#include "report/run_history.hpp"
#include "report/svg_plot.hpp"
#include "report/tensorboard.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr double kBarInterval = 0.1, kFirstRow = 5, kRowInterval = 60, kReportInterval = 20;  // seconds

/// Adds the records up to `last_step` to `history`; returns their size in the file. Units: bytes.
std::uintmax_t restore(const std::string& text, std::int64_t last_step, RunHistory& history, std::int64_t& trained,
                       std::map<std::string, std::int64_t>& evaluated) {
  return read_records(text, [&](const RunRecord& record) {
    return std::visit(
        [&]<class R>(const R& r) {
          if (r.step > last_step) return false;
          history.add(r);
          if constexpr (std::is_same_v<R, StepRecord>) {
            trained = r.step;
          } else {
            evaluated[r.split] = r.step;
          }
          return true;
        },
        record);
  });
}

/// The lines of a log without those of steps past `last_step` ("<date> <time>  step N ...").
std::string without_later_steps(const std::string& text, std::int64_t last_step) {
  constexpr std::size_t kStamp = 21;  // "2026-11-20 18:30:59  "
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\n', at);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const bool step_line = line.size() > kStamp + 5 && line.substr(kStamp, 5) == "step ";
    if (!step_line || std::strtoll(line.data() + kStamp + 5, nullptr, 10) <= last_step)
      kept += std::string(line) + "\n";
    at = end + 1;
  }
  return kept;
}

}  // namespace

struct RunLog::Impl {
  fs::path dir;
  RunFacts facts;
  RunHistory history;
  std::int64_t trained = -1;                      ///< last training step in the files
  std::map<std::string, std::int64_t> evaluated;  ///< the same per split
  AppendFile train_log, val_log, metrics;
  std::unique_ptr<EventWriter> events;
  std::vector<ReportTable> tables;
  std::vector<ReportPicture> pictures;
  std::vector<std::pair<std::string, std::string>> files;
  std::function<void()> remove_sink;
  bool own_line = false;  ///< log:: prints a line of this object, which train.log already has
  bool finished = false;

  Stopwatch clock, since_row, since_report;
  bool has_header = false, limit_known = false, utf8 = false;
  std::string pending;         ///< the last row that the interval held back
  std::optional<double> loss;  ///< of the last training record with one
  ProgressState progress;
  double last_bar = -1;

  ~Impl() {
    if (remove_sink) remove_sink();
  }

  std::string stamped(std::string_view line) const { return local_time() + "  " + std::string(line) + "\n"; }

  /// Prints a line that the files already have.
  void print(const std::string& line) {
    own_line = true;
    log::info(line);
    own_line = false;
  }

  /// Seconds to the last step at the mean speed of this start, evaluations included; negative: unknown.
  double seconds_left(std::int64_t step) const {
    const std::int64_t done = step - facts.resumed_at;
    if (facts.steps == 0 || done <= 0) return -1;
    return clock.seconds() * static_cast<double>(facts.steps - step) / static_cast<double>(done);
  }

  /// A row of the console's table; in a file it begins with the time of day.
  std::string row(const std::string& step, const std::string& epoch, const std::string& value, const std::string& loss,
                  const std::string& rate, const std::string& left) const {
    const auto width = [](std::size_t least, const std::string& text) {
      return static_cast<int>(std::max(least, text.size()));
    };
    const std::string clock = step == "step" ? "clock   " : local_time().substr(11);
    return (log::on_terminal() ? "" : clock + "  ") +
           printed("%*s  %7s  %*s  %10s  %9s  %9s", width(11, step_text(facts.steps)) - 5, step.c_str(), epoch.c_str(),
                   width(12, "val " + facts.decides) + 1, value.c_str(), loss.c_str(), rate.c_str(), left.c_str());
  }

  /// Adds a row to the table: after an evaluation with the value that decides, else at most every kRowInterval.
  void add_row(std::int64_t step, double epoch, const std::string& value) {
    const double left = seconds_left(step);
    pending = row(join(step, facts.steps > 0 ? join("/", facts.steps) : ""), printed("%.2f", epoch), value,
                  loss ? short_number(*loss) : "", short_rate(progress.samples_per_s),
                  left > 0 ? human_seconds(std::ceil(left)) : "");
    if (value.empty() && (log::on_terminal() || since_row.seconds() < (has_header ? kRowInterval : kFirstRow))) return;
    print_pending();
    if (facts.limit_s <= 0 || left <= 0 || limit_known || clock.seconds() < kRowInterval) return;
    limit_known = true;
    const double until = facts.limit_s - clock.seconds();
    log::info("time: ", human_seconds(left), " are needed, ", human_seconds(until), " are left of the time limit",
              left < until ? "" : ": the run stops there with a checkpoint, and the same command continues it");
  }
  void print_pending() {
    if (pending.empty()) return;
    if (!std::exchange(has_header, true))
      print(row("step", "epoch", "val " + facts.decides + " ", "train loss", "samples/s", "time left"));
    print(std::exchange(pending, {}));
    since_row.restart();
  }

  /// Logs once that the files cannot be written, and once that they can be written again.
  void report_failures() {
    std::string failure = report_failure;
    for (const std::string* of : {&train_log.failure(), &val_log.failure(), &metrics.failure(), &events->failure()})
      if (failure.empty()) failure = *of;
    if (failure.empty() == !failing) return;
    failing = !failure.empty();
    if (failing) {
      log::warning(failure, "; the run goes on, and its records wait in memory until there is space");
    } else {
      log::info("the records of the run are written again");
    }
  }
  void write_report() {
    try {
      write_text_atomically(dir / "report.html", report());
      report_failure.clear();
    } catch (const Error& error) {
      report_failure = error.what();
    }
    since_report.restart();
    report_failures();
  }

  std::string step_text(std::int64_t step) const {
    return facts.steps > 0 ? join("step ", step, "/", facts.steps) : join("step ", step);
  }

  std::string report() const {
    return report_html({facts, history, tables, pictures, files, finished ? outcome : "running", local_time()});
  }
  std::string outcome;
  std::string report_failure;  ///< why report.html was not written
  bool failing = false;        ///< whether the failure has been logged
};

RunLog::RunLog() = default;
RunLog::RunLog(RunLog&&) noexcept = default;
RunLog& RunLog::operator=(RunLog&&) noexcept = default;
RunLog::~RunLog() {
  if (impl_) log::status("");
}

RunLog::RunLog(const fs::path& dir, RunFacts facts) : impl_(std::make_unique<Impl>()) {
  Impl& log = *impl_;
  log.dir = dir;
  log.facts = std::move(facts);
  if (!log.facts.config.empty()) write_text_atomically(dir / "config.ini", log.facts.config);
  const std::int64_t last = log.facts.resumed_at;

  // Removes records past the resumed step, so that none occurs twice.
  const std::string metrics = read_if_there(dir / kMetricsFile);
  const auto kept = restore(metrics, last, log.history, log.trained, log.evaluated);
  if (kept < metrics.size()) truncate_file(dir / kMetricsFile, kept);
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (!is_event_file(entry.path())) continue;
    const std::string events = read_if_there(entry.path());
    if (const auto whole = whole_events(events, last); whole < events.size()) truncate_file(entry.path(), whole);
  }
  for (const char* name : {"train.log", "val.log"}) {
    const std::string old = read_if_there(dir / name), text = without_later_steps(old, last);
    if (text != old) write_text_atomically(dir / name, text);
  }

  log.train_log = AppendFile(dir / "train.log");
  log.val_log = AppendFile(dir / "val.log");
  log.metrics = AppendFile(dir / kMetricsFile);
  log.events = std::make_unique<EventWriter>(dir, last > 0 ? last + 1 : 0);
  if (last == 0 && !log.facts.config.empty()) {
    std::istringstream lines(log.facts.config);
    std::string markdown, line;
    while (std::getline(lines, line)) markdown += "    " + line + "\n";
    log.events->text("config.ini", markdown, 0, wall_time());
  }
  if (last == 0 && !log.facts.searched.empty()) log.events->hyperparameters(log.facts.searched, wall_time());
  log.files = {{"config.ini", "the resolved configuration, for `--config`"},
               {"train.log", "the console output and every logged step"},
               {"val.log", "every evaluation"},
               {kMetricsFile, "every record, one JSON object per line"},
               {"events.out.tfevents.*", "for `tensorboard --logdir .`"}};
  const char* language = std::getenv("LC_ALL");
  if (language == nullptr || *language == 0) language = std::getenv("LC_CTYPE");
  if (language == nullptr || *language == 0) language = std::getenv("LANG");
  log.utf8 = language != nullptr && std::string_view(language).find("UTF-8") != std::string_view::npos;
  log.progress.steps = log.facts.steps;

  Impl* target = impl_.get();
  log.remove_sink = log::add_sink([target](LogLevel, std::string_view line) {
    if (!target->own_line) target->train_log.append(target->stamped(line));
  });
  log.train_log.append(log.stamped(last > 0 ? join("continued after step ", last, ": ", log.facts.title)
                                            : "started: " + log.facts.title));
}

void RunLog::continue_after(std::int64_t step) {
  if (!impl_) return;
  const fs::path dir = impl_->dir;
  RunFacts facts = std::move(impl_->facts);
  auto files = std::move(impl_->files);
  facts.resumed_at = step;
  impl_.reset();
  *this = RunLog(dir, std::move(facts));
  impl_->files = std::move(files);
}

void RunLog::progress(std::int64_t step, double loss) {
  if (!impl_) return;
  Impl& log = *impl_;
  const double now = log.clock.seconds();
  log.progress.step = step;
  if (!log::on_terminal() || now - log.last_bar < kBarInterval) return;
  log.last_bar = now;
  ProgressState& p = log.progress;
  p.loss = loss;
  if (log.facts.steps_per_epoch > 0) {
    p.epoch = static_cast<double>(step) / static_cast<double>(log.facts.steps_per_epoch);
    if (log.facts.steps > 0)
      p.epochs = std::ceil(static_cast<double>(log.facts.steps) / static_cast<double>(log.facts.steps_per_epoch));
  }
  p.seconds_left = log.seconds_left(step);
  log::status(progress_line(p, terminal_columns(), log.utf8));
}

void RunLog::record(StepRecord r) {
  if (!impl_ || r.step <= impl_->trained) return;
  Impl& log = *impl_;
  log.trained = r.step;
  log.history.add(r);
  const double now = r.time = wall_time();
  log.metrics.append(record_line(r));
  std::vector<std::pair<std::string, double>> values;
  if (r.loss) values.emplace_back("loss/train", *r.loss);
  values.emplace_back("lr", r.lr);
  values.emplace_back("throughput/samples_per_s", r.samples_per_s);
  if (r.grad_norm >= 0) values.emplace_back("grad_norm", r.grad_norm);
  for (const auto& [phase, seconds] : r.phases) values.emplace_back("seconds/" + phase, seconds);
  for (const auto& metric : r.metrics) values.emplace_back("metrics/train/" + metric.name, metric.value);
  for (const GpuValues& gpu : r.gpus)
    for (const auto& v : gpu.values) values.emplace_back(join("gpu/", gpu.rank, "/", v.name), v.value);
  log.events->scalars(values, r.step, now);

  std::string line = log.step_text(r.step) + printed(" epoch %.2f", r.epoch);
  if (r.loss) line += " loss " + short_number(*r.loss);
  for (const auto& metric : r.metrics)  // the parts of the loss
    if (metric.name.ends_with("_loss")) line += " " + metric.name + " " + short_number(metric.value);
  line += printed(" lr %.2e", r.lr);
  if (r.grad_norm >= 0) line += " gnorm " + short_number(r.grad_norm);
  line += " " + short_rate(r.samples_per_s) + " samples/s";
  double total = 0;
  for (const auto& [phase, seconds] : r.phases) total += seconds;
  for (const auto& [phase, seconds] : r.phases)
    if (total > 0 && seconds >= 0.01 * total) line += " " + phase + printed(" %.0f%%", 100 * seconds / total);
  if (r.slowest_rank >= 0) line += join(" slowest rank ", r.slowest_rank) + printed(" +%.0f%%", 100 * r.slowest_by);
  log.train_log.append(log.stamped(line));
  log.progress.samples_per_s = r.samples_per_s;
  if (r.loss) log.loss = r.loss;
  if (log::detail() == LogDetail::all)
    log.print(line);
  else
    log.add_row(r.step, r.epoch, "");
  log.report_failures();
}

void RunLog::record(EvalRecord r) {
  if (!impl_) return;
  Impl& log = *impl_;
  const auto known = log.evaluated.find(r.split);
  if (known != log.evaluated.end() && r.step <= known->second) return;
  log.evaluated[r.split] = r.step;
  log.history.add(r);
  const double now = r.time = wall_time();
  log.metrics.append(record_line(r));
  std::vector<std::pair<std::string, double>> values;
  if (r.loss) values.emplace_back("loss/" + r.split, *r.loss);
  for (const auto& metric : r.metrics)
    if (metric.name != "loss") values.emplace_back("metrics/" + r.split + "/" + metric.name, metric.value);
  log.events->scalars(values, r.step, now);

  for (const MetricTable& t : r.tables) {
    const auto pixels = [](const auto& names) { return static_cast<int>(names.size()) * kHeatMapCell; };
    log.events->image(r.split + "/" + t.name, heat_map_png(t), pixels(t.columns), pixels(t.rows), r.step, now);
    add(ReportPicture{r.split + " samples, last evaluation: " + t.name, heat_map_svg(t)});
  }

  std::string line = log.step_text(r.step) + printed(" epoch %.2f ", r.epoch) + r.split;
  if (r.loss) line += " loss " + short_number(*r.loss);
  for (const auto& metric : r.metrics)
    if (metric.name != "loss") line += " " + metric.name + " " + short_number(metric.value);
  if (r.best) line += " best";
  log.val_log.append(log.stamped(line));
  if (log::detail() == LogDetail::all) {
    log.print(line);
  } else if (r.split == "validation") {
    if (log.facts.decides.empty()) log.facts.decides = r.loss || r.metrics.empty() ? "loss" : r.metrics.front().name;
    const Metric* named = find_metric(r.metrics, log.facts.decides);
    log.progress.validation = named != nullptr ? named->value : r.loss.value_or(std::nan(""));
    log.add_row(r.step, r.epoch, short_number(log.progress.validation) + (r.best ? "*" : " "));
  }
  if (log.since_report.seconds() >= kReportInterval) write_report();
  log.report_failures();
}

namespace {
/// Replaces the item with the same title, or appends.
template <class Item>
void put(std::vector<Item>& items, Item item) {
  for (Item& old : items)
    if (old.title == item.title) {
      old = std::move(item);
      return;
    }
  items.push_back(std::move(item));
}
}  // namespace

void RunLog::add(ReportTable table) {
  if (impl_) put(impl_->tables, std::move(table));
}
void RunLog::add(ReportPicture picture) {
  if (impl_) put(impl_->pictures, std::move(picture));
}

void RunLog::made(const fs::path& file, std::string what) {
  if (!impl_) return;
  const fs::path relative = file.lexically_proximate(impl_->dir);
  const std::string shown = relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
  for (auto& [path, old] : impl_->files)
    if (path == shown) {
      old = std::move(what);
      return;
    }
  impl_->files.emplace_back(shown, std::move(what));
}

void RunLog::write_report() {
  if (impl_) impl_->write_report();
}

std::string RunLog::sync() const {
  std::string failure;
  if (!impl_) return failure;
  for (const std::string& f :
       {impl_->metrics.sync(), impl_->events->sync(), impl_->train_log.sync(), impl_->val_log.sync()})
    if (failure.empty()) failure = f;
  return failure;
}

void RunLog::finish(std::string_view outcome) {
  if (!impl_) return;
  Impl& log = *impl_;
  log::status("");
  log.print_pending();
  log.outcome = outcome;
  log.finished = true;
  log.train_log.append(log.stamped(outcome));
  log.print(std::string(outcome));
  // The page of a short trial would cost as much as its training; the report of the search has its results. An earlier
  // start of the trial may have written one, which would then be of a run that goes on.
  if (log.facts.searched.empty() || log.clock.seconds() >= kReportInterval || fs::exists(log.dir / "report.html")) {
    made(log.dir / "report.html", "this page");
    write_report();
    log.print(join("log ", (log.dir / "train.log").string(), ", report ", (log.dir / "report.html").string(),
                   ", TensorBoard: tensorboard --logdir ", log.dir.string()));
  }
  if (const std::string failure = sync(); !failure.empty()) log::warning(failure);
  log.report_failures();
}

}  // namespace lockstep
