#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>

#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/describe.hpp"
#include "apps/lockstep/nested_runs.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/report/statistics.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<std::string>>;

struct CompareArguments {
  std::vector<std::string> runs, metrics;
  std::string split;
  bool json = false, markdown = false;
};

Options make_options(CompareArguments& a) {
  Options options(
      "lockstep compare", "Print the results of runs as a table.",
      "Runs whose configurations are equal except for run.seed form a row: the mean of each metric over the seeds, "
      "with its 95 % interval. The metrics are those that a run recorded at its end, or that lockstep eval --record "
      "added. Evaluations on other data, by another protocol or of other weights have separate rows.\n\nEach row is "
      "compared with the first one by a paired t-test over the seeds that both have. There is no test between rows of "
      "different data or protocols. The configuration keys in which rows differ are listed last.");
  options.positional("RUN", &a.runs, "run directories", 1);
  options.choice("split", &a.split, "test", {"val", "test"}, "split whose metrics to show")
      .value_alias("validation", "val")
      .value_alias("valid", "val");
  options.add("metric=NAME,...", &a.metrics, {}, "metrics to show; default: the first three that all rows have");
  options.add("markdown", &a.markdown, false, "print Markdown tables");
  options.add("json", &a.json, false, "print one JSON object, with the values of every run");
  options.example("lockstep compare runs/bce-* runs/softmax-*", "two losses, each with several seeds");
  options.example("lockstep compare --split val --metric ndcg@10,full.ndcg@10 runs/*", "chosen metrics");
  return options;
}

struct Run {
  fs::path dir;
  std::unique_ptr<RunConfig> config;
  std::unique_ptr<Options> table;  ///< bound to `config`
  std::string text;                ///< of config.ini
  RunRecords records;
  std::string devices;  ///< of its first start; "any" if neither batch nor learning rate depends on them
};

/// Runs that differ only in the seed, with their evaluations.
struct Row {
  std::string name;  ///< "A"
  std::vector<const Run*> runs;
  std::vector<const EvalRecord*> found;  ///< one for each run
  const EvalRecord& facts() const { return *found.front(); }
  std::string data() const { return join(facts().data_file, " (", facts().data_hash, ")"); }
};

/// Row b minus row a.
struct Difference {
  const Row *a, *b;
  std::vector<std::string> seeds;
  std::vector<MeanInterval> metrics;
  std::string refused;  ///< why there is no test; ""
  std::string name() const { return b->name + " - " + a->name; }
};

constexpr const char* kDevices = "devices";

std::string seed(const Run& run) { return run.table->value("run.seed"); }

std::string value(const Run& run, const std::string& key) {
  return key == "run.precision" ? run.config->precision() : run.table->value(key);
}

/// The keys of run `a`, except kind and seed, that affect the results and differ in run `b`. A key that `b` lacks
/// counts with its default.
std::vector<std::string> differing_keys_of(const Run& a, const Run& b) {
  const std::string source = (b.dir / "config.ini").string();
  std::string text;  // with the kind of `a`, because differences() names no other key when the kinds differ
  for (const IniEntry& entry : read_ini(b.text, source))
    text += ini_line(entry.key, entry.key == "model.kind" ? a.config->model_kind : entry.value);
  std::vector<std::string> keys;
  for (const std::string& line : a.table->differences(text, source))
    if (const std::string key = line.substr(0, line.find(": ")); key != "run.seed" && a.table->knows(key))
      keys.push_back(key);
  return keys;
}

/// The keys of both kinds, except the seed, that affect the results and differ between two runs; also kDevices.
std::vector<std::string> differing_keys(const Run& a, const Run& b) {
  std::vector<std::string> keys;
  if (a.config->model_kind != b.config->model_kind) keys.emplace_back("model.kind");
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const std::string& key : differing_keys_of(*one, *other))
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  // A run may continue with other values of these keys, but its results depend on them.
  for (const char* key : {"train.epochs", "train.steps", "run.precision", "dist.compress"})
    if (value(a, key) != value(b, key)) keys.emplace_back(key);
  if (a.devices != b.devices) keys.emplace_back(kDevices);
  return keys;
}

std::string names(const EvalRecord& evaluation) {
  return listed(evaluation.metrics, ", ", [](const Metric& m) { return m.name; });
}

/// The number of devices if batch or learning rate depends on it, else "any".
std::string devices_of(const Run& run) {
  const RunConfig& c = *run.config;
  if (c.batch.per_rank == 0 && c.optim.scale_lr == "none") return "any";
  const CheckpointFolder folder(run.dir);
  for (const fs::path& file : {folder.final_file(), folder.best_file()})
    if (fs::exists(file)) return join(CheckpointReader(file, true).devices());
  return c.dist.parallel == "dp" && c.run.device == "cpu" ? join(c.dist.replicas) : "unknown";
}

/// errors  Error (usage): a directory that holds several runs; the message names them
void require_single_run(const Run& run) {
  const std::string name = run.dir.string(), fold = fold_folder(1);
  require_usage(!fs::exists(run.dir / fold), "comparing runs: '", name,
                "' holds the runs of a cross-validation, and each fold tests other samples; compare the same fold of "
                "two directories: lockstep compare ",
                (run.dir / fold).string(), " OTHER/", fold, "; folds.json has the means over the folds");
  require_usage(member_count(*run.table) == 1, "comparing runs: '", name,
                "' holds an ensemble, whose members are runs with seeds of their own; name them: lockstep compare ",
                (run.dir / "member-*").string());
}

/// errors  Error: usage for a directory that holds no finished run; data for a configuration that cannot be read
Run read_run(const fs::path& dir) {
  const fs::path file = dir / "config.ini";
  require_usage(fs::exists(file), "comparing runs: '", dir.string(), "' is not a run directory: it has no config.ini");
  Run run{dir, std::make_unique<RunConfig>(), std::make_unique<Options>("lockstep compare"),
          {},  read_run_records(dir),         {}};
  try {
    run.text = read_text_file(file);
    std::string kind;
    for (const IniEntry& entry : read_ini(run.text, file.string()))
      if (entry.key == "model.kind") kind = entry.value;
    add_options(*run.table, *run.config, kind);
    run.table->parse_ini(run.text, file.string());
  } catch (const Error& e) {
    throw Error(Fault::data, join("comparing runs: the configuration of '", dir.string(), "': ", e.what()));
  }
  require_single_run(run);
  const RunRecords& r = run.records;
  const std::string state = r.step == 0 ? std::string("it has recorded no step")
                                        : join("step ", r.step, ", epoch ", printed("%.2f", r.epoch), ", last record ",
                                               human_seconds(std::max(0.0, r.age)), " ago");
  require_usage(has_finished(dir, r), "comparing runs: the run in '", dir.string(), "' has not finished: ", state,
                "; wait for its end, continue it with its command, or omit it");
  run.devices = devices_of(run);
  return run;
}

/// Whether a run writes checkpoints of this name again when it continues.
bool replaced_by_continuing(const std::string& weights) {
  return weights == "best" || weights.starts_with("best-") || weights == "final";
}

/// The evaluations of a split, one for each data set, protocol and weights. A metric that was recorded several times
/// has its last value. errors  Error (usage): there is none
std::vector<const EvalRecord*> evaluations(Run& run, const std::string& split) {
  std::vector<const EvalRecord*> found;
  bool unnamed = false;
  for (EvalRecord& e : run.records.evaluations) {
    if (e.split != split || (e.weights.empty() && !e.best)) continue;
    if (e.protocol.empty()) {
      unnamed = true;
      continue;
    }
    if (replaced_by_continuing(e.weights) && e.time < run.records.time) continue;
    const bool of_step = e.weights.empty();  // during the training
    if (of_step) e.weights = "best";
    const auto same = [&](const EvalRecord* other) {
      return other->data_hash == e.data_hash && other->protocol == e.protocol && other->weights == e.weights;
    };
    if (const auto old = std::ranges::find_if(found, same); old != found.end()) {
      if (!of_step || (*old)->step == e.step)  // else they are of other weights
        for (const Metric& m : (*old)->metrics)
          if (find_metric(e.metrics, m.name) == nullptr) e.metrics.push_back(m);
      *old = &e;
    } else {
      found.push_back(&e);
    }
  }
  const CheckpointFolder folder(run.dir);
  const fs::path weights = fs::exists(folder.best_file()) ? folder.best_file() : folder.final_file();
  require_usage(!found.empty(), "comparing runs: '", run.dir.string(), "' holds no ", split, " metrics of its weights",
                unnamed ? " with a protocol (an older version wrote them)" : "",
                "; add them: lockstep eval --checkpoint ", weights.string(), " --split ",
                split == "test" ? "test" : "val", " --record");
  return found;
}

/// "A", "B", ... "Z", "AA", ...
std::string row_name(std::size_t index) {
  const std::string last(1, static_cast<char>('A' + index % 26));
  return index < 26 ? last : row_name(index / 26 - 1) + last;
}

/// errors  Error (usage): two runs of a row have the same seed
std::deque<Row> group(std::deque<Run>& runs, const std::string& split) {
  std::deque<Row> rows;
  for (Run& run : runs) {
    for (const EvalRecord* e : evaluations(run, split)) {
      const auto belongs = [&](const Row& row) {
        return differing_keys(*row.runs[0], run).empty() && row.facts().data_hash == e->data_hash &&
               row.facts().protocol == e->protocol && row.facts().weights == e->weights;
      };
      auto row = std::ranges::find_if(rows, belongs);
      if (row == rows.end()) row = rows.insert(rows.end(), {row_name(rows.size()), {}, {}});
      for (const Run* other : row->runs)
        require_usage(seed(*other) != seed(run), "comparing runs: '", other->dir.string(), "' and '", run.dir.string(),
                      "' have the same configuration and seed ", seed(run),
                      ", so they are not independent; omit one of them");
      row->runs.push_back(&run);
      row->found.push_back(e);
    }
  }
  return rows;
}

/// The metrics to show. errors  Error (usage): one that a row lacks; none in common
std::vector<std::string> choose_metrics(const std::deque<Row>& rows, const std::vector<std::string>& wanted) {
  const auto lacks = [&](const std::string& metric) -> const Run* {
    for (const Row& row : rows)
      for (std::size_t i = 0; i < row.runs.size(); ++i)
        if (find_metric(row.found[i]->metrics, metric) == nullptr) return row.runs[i];
    return nullptr;
  };
  for (const std::string& metric : wanted)
    if (const Run* run = lacks(metric); run != nullptr)
      throw Error(Fault::usage, join("option metric = ", metric, ": '", run->dir.string(), "' has no such metric"));
  if (!wanted.empty()) return wanted;
  constexpr std::size_t kMain = 3;
  std::vector<std::string> common;
  for (const Metric& m : rows[0].facts().metrics)
    if (common.size() < kMain && lacks(m.name) == nullptr) common.push_back(m.name);
  if (common.empty()) {
    const std::string first = rows[0].facts().metrics.empty() ? "" : rows[0].facts().metrics[0].name;
    const auto other =
        std::ranges::find_if(rows, [&](const Row& row) { return find_metric(row.facts().metrics, first) == nullptr; });
    const Row& row = other == rows.end() ? rows.back() : *other;
    throw Error(Fault::usage, join("comparing runs: they have no metric in common: '", rows[0].runs[0]->dir.string(),
                                   "' has ", names(rows[0].facts()), "; '", row.runs[0]->dir.string(), "' has ",
                                   names(row.facts()), "; compare them separately"));
  }
  return common;
}

MeanInterval over_seeds(const Row& row, const std::string& metric) {
  std::vector<double> values;
  for (const EvalRecord* e : row.found) values.push_back(value_of(e->metrics, metric));
  return mean_interval(values);
}

Difference compare(const Row& a, const Row& b, const std::vector<std::string>& metrics) {
  Difference d{.a = &a, .b = &b, .seeds = {}, .metrics = {}, .refused = {}};
  std::vector<std::pair<const EvalRecord*, const EvalRecord*>> pairs;
  for (std::size_t i = 0; i < a.runs.size(); ++i)
    for (std::size_t j = 0; j < b.runs.size(); ++j)
      if (seed(*a.runs[i]) == seed(*b.runs[j])) {
        pairs.emplace_back(a.found[i], b.found[j]);
        d.seeds.push_back(seed(*a.runs[i]));
      }
  if (a.facts().data_hash != b.facts().data_hash) {
    d.refused = join("their data differ: ", a.data(), " and ", b.data());
  } else if (a.facts().protocol != b.facts().protocol) {
    d.refused = join("their protocols differ: ", a.facts().protocol, " and ", b.facts().protocol);
  } else if (pairs.size() < 2) {
    d.refused =
        join("they share ", pairs.size(), pairs.size() == 1 ? " seed" : " seeds", ", and the test needs two or more");
  }
  if (!d.refused.empty()) return d;
  for (const std::string& metric : metrics) {
    std::vector<double> values;
    double largest = 0;
    for (const auto& [of_a, of_b] : pairs) {
      const double from = value_of(of_a->metrics, metric), to = value_of(of_b->metrics, metric);
      values.push_back(to - from);
      largest = std::max({largest, std::abs(from), std::abs(to)});
    }
    // 0.54 - 0.53 and 0.52 - 0.51 differ only by rounding, which a test would find significant.
    const auto [least, most] = std::ranges::minmax(values);
    if (most - least <= 8 * std::numeric_limits<double>::epsilon() * largest) std::ranges::fill(values, values[0]);
    d.metrics.push_back(mean_interval(values));
  }
  return d;
}

/// A mean, and its interval to two digits: "0.1107 ± 0.0023".
std::string text(const MeanInterval& m) {
  if (!std::isfinite(m.half_width())) return printed("%.4g", m.value);
  const double digits = m.half_width() > 0 ? 1 - std::floor(std::log10(m.half_width())) : 4;
  const int decimals = static_cast<int>(std::clamp(digits, 0.0, 9.0));
  return printed("%.*f ± %.*f", decimals, m.value, m.half_width() > 0 ? decimals : 0, m.half_width());
}
std::string text_of_test(const MeanInterval& m) {
  const std::string sign = m.value < 0 ? "" : "+";
  if (m.deviation == 0) return sign + printed("%.4g", m.value) + ", equal in all seeds";
  return sign + text(m) + (m.p < 1e-4 ? ", p < 0.0001" : ", p " + printed("%.2g", m.p));
}

std::vector<std::string> seeds_of(const Row& row) {
  std::vector<std::string> seeds;
  for (const Run* run : row.runs) seeds.push_back(seed(*run));
  return seeds;
}

/// A header, and each key in which a row differs from the first one, with its value in every row.
Rows differing_keys(const std::deque<Row>& rows) {
  Rows lines = {{"key"}};
  std::vector<std::string> keys;
  for (const Row& row : rows) {
    lines[0].push_back(row.name);
    for (const std::string& key : differing_keys(*rows[0].runs[0], *row.runs[0]))
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  for (const std::string& key : keys) {
    std::vector<std::string>& line = lines.emplace_back(std::vector{key});
    for (const Row& row : rows) {
      const Run& run = *row.runs[0];
      const std::string shown = key == kDevices ? run.devices : run.table->knows(key) ? value(run, key) : "-";
      line.push_back(shown.empty() ? "nothing" : shown);
    }
  }
  return lines;
}

std::string markdown_table(const Rows& rows) {
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& cell : rows[i]) out += "| " + cell + " ";
    out += "|\n";
    if (i > 0) continue;
    for (std::size_t column = 0; column < rows[0].size(); ++column) out += "|---";
    out += "|\n";
  }
  return out;
}

std::string text(const CompareArguments& a, const std::deque<Row>& rows, const std::vector<std::string>& metrics,
                 const std::vector<Difference>& differences) {
  const auto shown = [&](const Rows& lines) { return a.markdown ? markdown_table(lines) : aligned(lines); };
  std::string out;
  Rows facts = {{"row", "model", "data", "protocol", "weights", "seeds"}}, results = {{"row"}};
  for (const std::string& metric : metrics) results[0].push_back(metric);
  results[0].insert(results[0].end(), {"steps", "time"});
  bool single = false;
  for (const Row& row : rows) {
    facts.push_back({row.name, row.runs[0]->config->model_kind, row.data(), row.facts().protocol, row.facts().weights,
                     listed(seeds_of(row))});
    std::vector<std::string>& line = results.emplace_back(std::vector{row.name});
    for (const std::string& metric : metrics) line.push_back(text(over_seeds(row, metric)));
    const auto [least, most] = std::ranges::minmax(row.runs, {}, [](const Run* run) { return run->records.step; });
    double seconds = 0;
    for (const Run* run : row.runs) seconds += run->records.seconds / static_cast<double>(row.runs.size());
    const std::int64_t from = least->records.step, to = most->records.step;
    line.insert(line.end(), {from == to ? join(from) : join(from, " to ", to), human_seconds(seconds)});
    single = single || row.runs.size() == 1;
  }
  if (a.markdown) {
    for (std::size_t i = 0; i < facts.size(); ++i)
      results[i].insert(results[i].begin() + 1, facts[i].begin() + 1, facts[i].end());
  } else {
    for (std::size_t i = 1; i < facts.size(); ++i)
      out += join("  ", facts[i][0], "  ", facts[i][1], ", ", facts[i][2], "\n     ", facts[i][3], "\n     weights ",
                  facts[i][4], ", seed", rows[i - 1].runs.size() == 1 ? " " : "s ", facts[i][5], "\n");
    out += "\n";
  }
  out += shown(results);
  out += join("\nMean ± half of the 95 % interval (Student's t over the seeds)",
              single ? "; a row of one seed has no interval" : "", ". Time: mean wall time of the training.\n");

  Rows tests = {{"difference", "seeds"}};
  tests[0].insert(tests[0].end(), metrics.begin(), metrics.end());
  std::string refused;
  for (const Difference& d : differences) {
    if (!d.refused.empty()) {
      refused += join(a.markdown ? "- " : "", d.name(), ": no paired test: ", d.refused, ".\n");
      continue;
    }
    std::vector<std::string>& line = tests.emplace_back(std::vector{d.name(), listed(d.seeds)});
    for (const MeanInterval& m : d.metrics) line.push_back(text_of_test(m));
  }
  if (tests.size() > 1) out += "\nPaired t-tests over the seeds:\n\n" + shown(tests);
  if (!refused.empty()) out += "\n" + refused;
  if (const Rows keys = differing_keys(rows); keys.size() > 1) out += "\nKeys that differ:\n\n" + shown(keys);
  return out;
}

Json interval(const MeanInterval& m) { return {{"mean", m.value}, {"half_width", m.half_width()}}; }

Json json(const std::deque<Row>& rows, const std::vector<std::string>& metrics,
          const std::vector<Difference>& differences) {
  Json out = {{"metrics", metrics}, {"rows", Json::array()}, {"differences", Json::array()}};
  for (const Row& row : rows) {
    const EvalRecord& facts = row.facts();
    Json line = {{"row", row.name},
                 {"model", row.runs[0]->config->model_kind},
                 {"data", {{"file", facts.data_file}, {"hash", facts.data_hash}}},
                 {"protocol", facts.protocol},
                 {"weights", facts.weights},
                 {"runs", Json::array()}};
    for (std::size_t i = 0; i < row.runs.size(); ++i) {
      const Run& run = *row.runs[i];
      line["runs"].push_back({{"directory", run.dir.string()},
                              {"seed", seed(run)},
                              {"steps", run.records.step},
                              {"seconds", run.records.seconds},
                              {"metrics", json_of(row.found[i]->metrics)}});
    }
    for (const std::string& metric : metrics) line["metrics"][metric] = interval(over_seeds(row, metric));
    out["rows"].push_back(line);
  }
  for (const Difference& d : differences) {
    Json line = {{"row", d.b->name}, {"minus", d.a->name}, {"seeds", d.seeds}};
    if (!d.refused.empty()) line["refused"] = d.refused;
    for (std::size_t i = 0; i < d.metrics.size(); ++i) {
      line["metrics"][metrics[i]] = interval(d.metrics[i]);
      line["metrics"][metrics[i]]["p"] = d.metrics[i].p;
    }
    out["differences"].push_back(line);
  }
  const Rows keys = differing_keys(rows);
  out["keys"] = Json::object();
  for (std::size_t i = 1; i < keys.size(); ++i)
    for (std::size_t row = 1; row < keys[i].size(); ++row) out["keys"][keys[i][0]][keys[0][row]] = keys[i][row];
  return out;
}

}  // namespace

int run_compare(World& world, const Args& args) {
  CompareArguments a;
  Options options = make_options(a);
  if (!parse(world, options, args)) return 0;
  world.together("comparing runs", [&] {
    require_usage(!a.json || !a.markdown, "options json and markdown: choose one form of the output");
    if (world.rank() != 0) return;
    std::deque<Run> runs;
    for (const std::string& dir : a.runs) runs.push_back(read_run(dir));
    const std::deque<Row> rows = group(runs, a.split == "test" ? "test" : "validation");
    const std::vector<std::string> metrics = choose_metrics(rows, a.metrics);
    std::vector<Difference> differences;
    for (std::size_t i = 1; i < rows.size(); ++i) differences.push_back(compare(rows[0], rows[i], metrics));
    if (a.json) {
      std::cout << line_of(json(rows, metrics, differences), -1);
    } else {
      std::cout << text(a, rows, metrics, differences);
    }
  });
  return 0;
}

}  // namespace lockstep::apps
