#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "apps/lockstep/campaign.hpp"
#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/describe.hpp"
#include "apps/lockstep/search.hpp"
#include "apps/lockstep/training_run.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/parallel_axes.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/report/statistics.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;
constexpr std::size_t kShown = 10;

/// The best evaluation of the validation samples up to an epoch, as JSON.
/// errors  Error (data): the metric was never finite
std::string best_of(const fs::path& dir, const Training& training, const Metric& metric) {
  const EvalRecord* best = nullptr;
  double value = 0;
  const RunRecords records = read_run_records(dir);
  for (const EvalRecord& record : records.evaluations) {
    if (record.split != "validation" || !record.weights.empty()) continue;
    if (training.until_epoch > 0 && record.epoch > static_cast<double>(training.until_epoch)) continue;
    const double found = metric.name == "loss" && record.loss ? *record.loss : value_of(record.metrics, metric.name);
    if (!std::isfinite(found) || (best != nullptr && !(metric.larger_is_better ? found > value : found < value)))
      continue;
    best = &record;
    value = found;
  }
  require_data(best != nullptr, "reading '", dir.string(), "': ", metric.name, " of the validation samples was never ",
               "finite");
  return Json{{"value", value}, {"epoch", best->epoch}, {"step", best->step}}.dump();
}

/// The ranges of the options `sweep.KEY`, by the texts; takes that of the seed out.
std::vector<SearchRange> read_ranges(const Options& options, const std::map<std::string, std::string>& texts,
                                     const std::vector<std::string>& order, const std::string& kind,
                                     std::vector<std::string>& seeds) {
  std::vector<SearchRange> ranges;
  std::vector<std::string> keys = options.keys();
  std::erase_if(keys, [](const std::string& key) { return key.starts_with("sweep."); });
  const auto spellings = options.spellings();
  for (const std::string& name : order) {
    std::string key = name.substr(name.find('.') + 1);
    for (const auto& [spelling, means] : spellings)
      if (spelling == "--" + key) key = means;
    if (std::ranges::find(keys, key) == keys.end()) {
      const std::string near = nearest(key, keys);
      options.reject(name, join("there is no key ", key, near.empty() ? "" : "; did you mean " + near + "?"));
    }
    for (const char* fixed : {"run.", "dist.", "checkpoint.", "eval.", "sweep.", "model.kind", "data.path"})
      if (key.starts_with(fixed) && key != "run.seed")
        options.reject(name, join(key, " does not decide what a network learns, so a search cannot compare it"));
    const SearchRange& range = ranges.emplace_back(key, texts.at(name), options.accepted(key) == "N");
    require_usage(std::ranges::count(ranges, key, &SearchRange::key) == 1, "option ", name, ": ", key,
                  " has two ranges");
    for (const std::string& value : range.ends()) {
      RunConfig config;
      Options table("lockstep sweep");
      add_options(table, config, kind);
      table.parse_ini(ini_line(key, value), "[sweep]");
    }
    if (key != "run.seed") continue;
    require_usage(!range.is_interval(), "option ", name, ": seeds are whole numbers; write range(N)");
    seeds = range.ends();
    ranges.pop_back();
  }
  require_usage(
      !ranges.empty() || seeds.size() > 1,
      "lockstep sweep needs keys to search: a section [sweep] with lines such as optim.lr = log(1e-4 .. 1e-2)");
  return ranges;
}

/// The keys of a configuration that differ from their defaults, as an INI file that any run directory can use.
std::string ini_of(const NestedRun& run, const std::string& comment) {
  std::string text = "; " + comment + "\n";
  for (const std::string& key : run.options.keys())
    if (key == "model.kind" ||
        (key != "run.dir" && key != "run.resume" && run.options.value(key) != run.options.initial(key)))
      text += ini_line(key, run.options.value(key));
  return text;
}

/// The results of a search, for people and programs.
class Summary {
 public:
  Summary(const Search& search, const TrainingEnds& ends, const Metric& metric)
      : search_(search), ends_(ends), metric_(metric), order_(search.ranking(ends)) {}
  bool empty() const { return order_.empty(); }
  std::size_t best() const { return order_.front(); }
  MeanInterval score(std::size_t c) const {
    return mean_interval(search_.results(c, *search_.last_rung(c, ends_), ends_));
  }

  ReportTable table() const {
    const bool several = search_.seeds().size() > 1;
    ReportTable table{.title = join("Best configurations by ", metric_.name), .columns = {"place"}, .rows = {}};
    for (const SearchRange& range : search_.ranges()) table.columns.push_back(range.key());
    table.columns.push_back(metric_.name);
    if (several) table.columns.emplace_back("95 % +-");
    table.columns.emplace_back("trial");
    for (std::size_t i = 0; i < std::min(kShown, order_.size()); ++i) {
      auto& row = table.rows.emplace_back(std::vector{std::to_string(i + 1)});
      const MeanInterval value = score(order_[i]);
      row.insert(row.end(), search_.values(order_[i]).begin(), search_.values(order_[i]).end());
      row.push_back(printed("%.6g", value.value));
      if (several) row.push_back(printed("%.2g", value.half_width()));
      row.push_back(search_.training(order_[i], 0, 0).folder);
    }
    return table;
  }

  /// By key; from the first rung, which all configurations have in common.
  std::vector<std::pair<std::string, std::optional<double>>> importances() const {
    std::vector<std::pair<std::string, std::optional<double>>> all;
    for (std::size_t k = 0; k < search_.ranges().size(); ++k) {
      std::vector<double> places, values;
      for (std::size_t c = 0; c < search_.size(); ++c) {
        const std::vector<double> found = search_.results(c, search_.rungs().front(), ends_);
        if (found.empty()) continue;
        places.push_back(search_.ranges()[k].place(search_.values(c)[k]));
        values.push_back(mean_interval(found).value);
      }
      all.emplace_back(search_.ranges()[k].key(), importance(places, values, search_.ranges()[k].is_interval()));
    }
    return all;
  }

  ReportTable importance_table() const {
    ReportTable table{
        .title = "Importance: share of the variance of the ranks (main effects, Kelley's epsilon squared)",
        .columns = {"key", "share"},
        .rows = {}};
    for (const auto& [key, share] : importances())
      table.rows.push_back({key, share ? printed("%.3f", *share) : "not estimable: each value was tried once"});
    return table;
  }

  std::string picture() const {
    std::vector<ParallelAxis> axes;
    for (const SearchRange& range : search_.ranges()) {
      ParallelAxis& axis = axes.emplace_back(range.key(), std::vector<std::pair<double, std::string>>());
      for (const std::string& value : range.ends()) axis.marks.emplace_back(range.place(value), value);
    }
    std::vector<double> values;
    for (const std::size_t c : order_) values.push_back(score(c).value);
    const double first = values.front(), last = values.back();
    const auto place = [&](double value) { return first == last ? 1.0 : (value - last) / (first - last); };
    const auto [worst, best] = std::ranges::minmax(values, {}, place);
    const double low = place(worst), high = std::max(place(best), low + 1e-9);
    axes.push_back({metric_.name, {{0, printed("%.4g", worst)}, {1, printed("%.4g", best)}}});
    std::vector<ParallelLine> lines;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      ParallelLine& line = lines.emplace_back();
      for (std::size_t k = 0; k < search_.ranges().size(); ++k)
        line.places.push_back(search_.ranges()[k].place(search_.values(order_[i])[k]));
      line.places.push_back((place(values[i]) - low) / (high - low));
      line.note = join(search_.text(order_[i]), ": ", metric_.name, " ", printed("%.6g", values[i]));
    }
    return parallel_axes_svg(axes, lines, kShown);
  }

  Json json() const {
    Json trials = Json::array(), ranking = Json::array(), shares = Json::object();
    for (std::size_t c = 0; c < search_.size(); ++c)
      for (std::size_t s = 0; s < search_.seeds().size(); ++s) {
        Json trial = {{"folder", search_.training(c, s, 0).folder}, {"values", values(c)}};
        if (search_.seeds().size() > 1) trial["seed"] = search_.seeds()[s];
        for (const std::int64_t rung : search_.rungs()) {
          const auto end = ends_.find(search_.training(c, s, rung).name());
          if (end == ends_.end()) continue;
          Json result = {{"until_epoch", rung}};
          if (end->second.code == kExitDone)
            result.update(Json::parse(end->second.text));
          else
            result["failed"] = end->second.text;
          trial["results"].push_back(std::move(result));
        }
        trials.push_back(std::move(trial));
      }
    for (const std::size_t c : order_) {
      const MeanInterval value = score(c);
      Json place = {{"folder", search_.training(c, 0, 0).folder}, {"values", values(c)}, {metric_.name, value.value}};
      if (search_.seeds().size() > 1) {
        place["deviation"] = value.deviation;
        place["interval_95"] = {value.low, value.high};
      }
      ranking.push_back(std::move(place));
    }
    for (const auto& [key, share] : importances()) shares[key] = share ? Json(*share) : Json();
    return {{"metric", metric_.name},
            {"larger_is_better", metric_.larger_is_better},
            {"importance", shares},
            {"ranking", ranking},
            {"trials", trials}};
  }

 private:
  Json values(std::size_t c) const {
    Json values = Json::object();
    for (std::size_t k = 0; k < search_.ranges().size(); ++k) values[search_.ranges()[k].key()] = search_.values(c)[k];
    return values;
  }

  const Search& search_;
  const TrainingEnds& ends_;
  const Metric& metric_;
  std::vector<std::size_t> order_;
};

/// The most frequent messages of trainings that have failed.
std::string common_failures(const TrainingEnds& ends) {
  constexpr std::size_t kMessages = 3;
  std::map<std::string, int> counts;
  for (const auto& [name, end] : ends)
    if (end.code != kExitDone) ++counts[end.text];
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [text, count] : counts) order.emplace_back(-count, text);
  std::ranges::sort(order);
  std::string list;
  for (std::size_t i = 0; i < std::min(kMessages, order.size()); ++i)
    list += join("\n  ", -order[i].first, " times: ", order[i].second);
  return list;
}

/// How to compare the best configuration with the one that the options have without the search, if that is among them.
std::string comparison(const Options& options, const Search& search, std::size_t best, const fs::path& dir) {
  const auto value = [&](const SearchRange& range) { return options.value(range.key()); };
  for (std::size_t c = 0; c < search.size(); ++c) {
    if (!std::ranges::equal(search.values(c), search.ranges(), {}, {}, value)) continue;
    if (c == best) return "the best configuration is that of the file";
    std::string command = "paired comparison with the configuration of the file: lockstep compare --split val";
    for (const std::size_t of : {c, best})
      for (std::size_t s = 0; s < search.seeds().size(); ++s)
        command += " " + (dir / search.training(of, s, 0).folder).string();
    return search.seeds().size() > 1 ? command : "";
  }
  return "";
}

void write_results(const Options& options, const RunConfig& config, const Search& search, const Summary& summary,
                   const SearchMethod& method, const Metric& metric) {
  const fs::path dir = config.run.dir;
  Json json = {{"data", config.data.path}, {"method", method.name}};
  json.update(summary.json());
  write_text_atomically(dir / "sweep.json", line_of(json, 1));
  const std::size_t best = summary.best();
  const MeanInterval value = summary.score(best);
  Changes changes = search.training(best, 0, 0).changes;
  write_text_atomically(dir / "best.ini", ini_of(*make_training(options, config, changes, ""),
                                                 join("the best of ", search.size(), " configurations: ", metric.name,
                                                      " = ", printed("%.6g", value.value))));
  const std::string what =
      join("search over ", search.size(), " configurations of ", fs::path(config.data.path).filename().string());
  RunLog report(dir, {.title = what,
                      .config = config.text,
                      .facts = {{"data", config.data.path}, {"method", method.name}, {"best", search.text(best)}}});
  log::info("best configurations", table_text(summary.table()));
  if (!search.ranges().empty()) log::info("importance of the keys", table_text(summary.importance_table()));
  const Json& trained = json.at("trials")[best * search.seeds().size()].at("results").back();
  EvalRecord record;
  record.step = trained.at("step");
  record.epoch = trained.at("epoch");
  record.split = "validation";
  record.metrics = {{metric.name, value.value, metric.larger_is_better}};
  record.protocol = join("validation, best of ", search.size(), " configurations");
  record.data_file = fs::path(config.data.path).filename().string();
  report.record(record);
  report.add(summary.table());
  if (!search.ranges().empty()) {
    report.add(summary.importance_table());
    report.add(ReportPicture{"All configurations", summary.picture()});
  }
  report.made(dir / "sweep.json", "all results");
  report.made(dir / "best.ini", "the best configuration, for lockstep train --config");
  report.finish(join("finished the ", what));
  if (const std::string how = comparison(options, search, best, dir); !how.empty()) log::info(how);
}

}  // namespace

int run_sweep(World& world, const Args& args) {
  RunConfig config;
  SearchMethod method;
  Campaign campaign;
  Options options(
      "lockstep sweep", "Search for the best values of some keys: many trainings at once.",
      "The section [sweep] of the configuration has a range for each key: choice(A, B), range(N), log(A .. B), "
      "uniform(A .. B). Groups of ranks take the trainings from a queue. The result is the same on any number of "
      "ranks. The metric eval.best of the validation samples decides; the test samples are not used. An error ends "
      "its training alone. The same command continues after an interruption. At the end, sweep.json and report.html "
      "have all results, and best.ini is the best configuration, for lockstep train.");
  options.example("mpirun -n 2 lockstep sweep --config configs/sweep-emulator.ini", "learning rate and width");
  options.section("sweep", "Search");
  options.choice("sweep.method", &method.name, "grid", {"grid", "random", "halving"},
                 "grid: all combinations; random: draws; halving: draws, of which the better ones train longer");
  options.add("sweep.trials", &method.configurations, 0, between(0, 1e6), "configurations that random and halving draw")
      .may_change();
  options.add("sweep.factor", &method.factor, 3, between(2, 100),
              "halving: one of so many configurations continues to the next rung, which is so many times as long");
  options.add("sweep.rungs", &method.rungs, 3, between(2, 20), "halving: rungs, the last one of train.epochs");
  add_ranks_per_run(options, &campaign.ranks_per_run, 1);
  std::map<std::string, std::string> texts;
  std::vector<std::string> order;
  if (help_argument(args).empty()) order = keys_of_section(world, args, "sweep");
  std::erase_if(order, [&](const std::string& key) { return options.knows(key); });
  for (const std::string& key : order) options.add(key, &texts[key], "", "values of " + key.substr(6));
  if (!parse(world, options, args, config)) return 0;
  const std::optional<ForeignWeights> first_weights = read_first_weights(world, config, options);
  complete(world, config, options, args);
  world.configure({.timeout_s = config.dist.timeout, .check_collectives = config.dist.check_collectives});
  require_same_program(world);
  std::unique_ptr<Search> search;
  std::unique_ptr<NestedRun> base;
  world.together("checking the configuration", [&] {
    check(config);
    if (config.resumes_file()) options.reject("run.resume", "each trial has its own checkpoints; choose auto or never");
    if (method.name == "halving" && config.train.steps > 0)
      options.reject("train.steps", "halving counts in epochs; set train.epochs");
    method.seed = config.run.seed;
    method.epochs = config.train.epochs;
    method.eval_every = config.eval.every;
    std::vector<std::string> seeds = {""};
    std::vector<SearchRange> ranges = read_ranges(options, texts, order, config.model_kind, seeds);
    search = std::make_unique<Search>(std::move(ranges), std::move(seeds), method);
    Changes changes = {{"eval.final", "none"}};  // the trainings leave the test samples alone
    // Most of them are shorter than this, and a checkpoint costs as much as some epochs of a small network.
    if (std::ranges::none_of(std::array{"checkpoint.every", "checkpoint.every_steps", "checkpoint.every_minutes"},
                             [&](const char* key) { return options.given(key); }))
      changes.emplace_back("checkpoint.every_minutes", "1");
    base = make_training(options, config, changes, "");
    base->config.run.dir = config.run.dir;
    if (world.rank() != 0) return;
    open_directory(config, options, TakeOver::no);
    write_text_atomically(fs::path(config.run.dir) / "config.ini", config.text);
  });
  const SharedData data(world, base->config);
  method.larger_is_better = data.decides().larger_is_better;
  search = std::make_unique<Search>(search->ranges(), search->seeds(), method);
  campaign.plan = [&](const TrainingEnds& ends) { return search->plan(ends); };
  campaign.result = [&](const fs::path& dir, const Training& t) { return best_of(dir, t, data.decides()); };
  campaign.first_weights = &first_weights;
  campaign.data = &data;
  campaign.many = true;
  log::info(method.name, ": ", search->size(), " configurations",
            search->seeds().size() > 1 ? join(" with ", search->seeds().size(), " seeds each") : "", " on ",
            world.size(), world.size() == 1 ? " rank" : " ranks", ", ", campaign.ranks_per_run, " per training");
  const TrainingEnds ends = train_campaign(world, base->options, base->config, campaign);
  if (!is_complete(campaign, ends)) {
    log::info(ends.size(), " trainings are finished; the same command continues");
    return kExitInterrupted;
  }
  const Summary summary(*search, ends, data.decides());
  world.together("writing the results of the search", [&] {
    require(!summary.empty(), "searching: all trainings have failed:", common_failures(ends));
    if (world.rank() == 0) write_results(options, config, *search, summary, method, data.decides());
  });
  return kExitDone;
}

}  // namespace lockstep::apps
