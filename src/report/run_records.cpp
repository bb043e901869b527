#include "lockstep/report/run_records.hpp"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/append_file.hpp"
#include "report/tensorboard.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kTrain = "train";

Json json_of(const std::vector<Metric>& metrics) {
  Json object = Json::object();
  for (const auto& metric : metrics) object[metric.name] = metric.value;
  return object;
}

Json json_of(const StepRecord& r) {
  Json line = {{"step", r.step}, {"epoch", r.epoch}, {"split", kTrain}};
  if (r.loss) line["loss"] = *r.loss;
  line["lr"] = r.lr;
  if (r.grad_norm >= 0) line["grad_norm"] = r.grad_norm;
  line["samples_per_s"] = r.samples_per_s;
  if (r.ranks > 0) line["ranks"] = r.ranks;
  Json seconds = {{"total", r.seconds}};
  for (const auto& [phase, value] : r.phases) seconds[phase] = value;
  line["seconds"] = seconds;
  if (r.slowest_rank >= 0) line["slowest_rank"] = r.slowest_rank, line["slowest_by"] = r.slowest_by;
  for (const GpuValues& gpu : r.gpus) line["gpus"][std::to_string(gpu.rank)] = json_of(gpu.values);
  line["metrics"] = json_of(r.metrics);
  return line;
}

Json json_of(const EvalRecord& r) {
  Json line = {{"step", r.step}, {"epoch", r.epoch}, {"split", r.split}};
  line["protocol"] = r.protocol;
  line["data"] = {{"file", r.data_file}, {"hash", r.data_hash}};
  if (!r.weights.empty()) line["weights"] = r.weights;
  if (r.loss) line["loss"] = *r.loss;
  line["best"] = r.best;
  line["samples_per_s"] = r.samples_per_s;
  line["seconds"] = {{"total", r.seconds}};
  line["metrics"] = json_of(r.metrics);
  for (const MetricTable& t : r.tables)
    line["tables"][t.name] = {{"rows", t.rows}, {"columns", t.columns}, {"values", t.values}};
  return line;
}

/// A number of a record. JSON stores infinite and undefined numbers as null.
double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}
std::int64_t whole(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}
std::string text(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}
std::optional<double> loss(const Json& line) {
  return line.contains("loss") ? std::optional(number(line, "loss")) : std::nullopt;
}
Json object(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_object() ? *found : Json::object();
}

std::vector<Metric> metrics_of(const Json& values) {
  std::vector<Metric> metrics;
  for (const auto& [name, value] : values.items())
    metrics.push_back({name, value.is_number() ? value.get<double>() : std::nan("")});
  return metrics;
}

StepRecord step_record(const Json& line) {
  const Json seconds = object(line, "seconds");
  StepRecord r{.step = line["step"].get<std::int64_t>(),
               .epoch = number(line, "epoch"),
               .loss = loss(line),
               .lr = number(line, "lr"),
               .grad_norm = line.contains("grad_norm") ? number(line, "grad_norm") : -1,
               .samples_per_s = number(line, "samples_per_s"),
               .seconds = number(seconds, "total"),
               .phases = {},
               .ranks = whole(line, "ranks"),
               .metrics = metrics_of(object(line, "metrics")),
               .time = number(line, "time")};
  const Json gpus = object(line, "gpus");
  for (const auto& [rank, values] : gpus.items()) r.gpus.push_back({std::atoi(rank.c_str()), metrics_of(values)});
  for (const auto& [phase, value] : seconds.items())
    if (phase != "total" && value.is_number()) r.phases.emplace_back(phase, value.get<double>());
  return r;
}

std::vector<std::string> words(const Json& table, const char* key) {
  std::vector<std::string> words;
  if (const auto found = table.find(key); found != table.end() && found->is_array())
    for (const Json& word : *found) words.push_back(word.is_string() ? word.get<std::string>() : "");
  return words;
}

/// The tables whose values fit their rows and columns.
std::vector<MetricTable> tables_of(const Json& line) {
  std::vector<MetricTable> tables;
  const Json named = object(line, "tables");
  for (const auto& [name, table] : named.items()) {
    if (!table.is_object()) continue;
    MetricTable& t = tables.emplace_back(MetricTable{name, words(table, "rows"), words(table, "columns"), {}});
    if (const auto values = table.find("values"); values != table.end() && values->is_array())
      for (const Json& value : *values) t.values.push_back(value.is_number() ? value.get<double>() : std::nan(""));
    if (t.values.size() != t.rows.size() * t.columns.size()) tables.pop_back();
  }
  return tables;
}

EvalRecord eval_record(const Json& line) {
  const Json data = object(line, "data");
  return {.step = line["step"].get<std::int64_t>(),
          .epoch = number(line, "epoch"),
          .split = text(line, "split"),
          .loss = loss(line),
          .metrics = metrics_of(object(line, "metrics")),
          .samples_per_s = number(line, "samples_per_s"),
          .seconds = number(object(line, "seconds"), "total"),
          .best = line.contains("best") && line["best"] == true,
          .tables = tables_of(line),
          .protocol = text(line, "protocol"),
          .data_file = text(data, "file"),
          .data_hash = text(data, "hash"),
          .weights = text(line, "weights"),
          .time = number(line, "time")};
}

}  // namespace

std::string record_line(const RunRecord& record) {
  Json line = std::visit([](const auto& r) { return json_of(r); }, record);
  line["time"] = std::visit([](const auto& r) { return r.time; }, record);
  return json_text(line) + "\n";
}

std::size_t read_records(std::string_view text, const std::function<bool(RunRecord)>& take) {
  std::size_t at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const Json line = parse_ordered_json(text.substr(at, end - at));
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) break;
    if (!line.contains("split") || !line["split"].is_string()) break;
    if (!take(line["split"] == kTrain ? RunRecord(step_record(line)) : RunRecord(eval_record(line)))) break;
  }
  return at;
}

void name_slowest(StepRecord& record, const std::vector<double>& seconds) {
  const auto slowest = std::ranges::max_element(seconds);
  record.slowest_rank = static_cast<int>(slowest - seconds.begin());
  std::vector<double> others(seconds);
  others.erase(others.begin() + record.slowest_rank);
  std::ranges::sort(others);
  const double median = (others[(others.size() - 1) / 2] + others[others.size() / 2]) / 2;
  record.slowest_by = median > 0 ? *slowest / median - 1 : 0;
}

void require_recordable(const fs::path& run_dir) {
  const fs::path file = run_dir / kEvaluationsFile;
  require_writable(file);
  if (fs::exists(file)) const AppendFile opened(file);
}

void add_evaluation(const fs::path& run_dir, EvalRecord record) {
  record.time = wall_time();
  AppendFile file(run_dir / kEvaluationsFile);
  file.append(record_line(std::move(record)));
  const std::string failure = file.failure().empty() ? file.sync() : file.failure();
  require(failure.empty(), "recording an evaluation: ", failure);
}

RunRecords read_run_records(const fs::path& run_dir) {
  RunRecords run;
  std::int64_t tested = -1;
  read_records(read_if_there(run_dir / kMetricsFile), [&](RunRecord record) {
    if (const auto* step = std::get_if<StepRecord>(&record)) {
      run.step = step->step, run.epoch = step->epoch, run.time = step->time;
      run.seconds += step->seconds;
    } else {
      run.evaluations.push_back(std::get<EvalRecord>(std::move(record)));
      if (run.evaluations.back().split == "test") tested = run.evaluations.back().step;
    }
    return true;
  });
  run.evaluated = tested >= run.step;
  run.age = wall_time() - run.time;
  read_records(read_if_there(run_dir / kEvaluationsFile), [&](RunRecord record) {
    if (auto* found = std::get_if<EvalRecord>(&record)) run.evaluations.push_back(std::move(*found));
    return true;
  });
  return run;
}

}  // namespace lockstep
