#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "apps/lockstep/campaign.hpp"
#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/describe.hpp"
#include "apps/lockstep/search.hpp"
#include "apps/lockstep/training_run.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/parallel_axes.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/report/timeline.hpp"
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
    const bool late = training.until_epoch > 0 && record.epoch > static_cast<double>(training.until_epoch);
    if (late || record.split != "validation" || !record.weights.empty()) continue;
    const double found = metric.name == "loss" && record.loss ? *record.loss : value_of(record.metrics, metric.name);
    if (!std::isfinite(found) || (best != nullptr && (metric.larger_is_better ? found <= value : found >= value)))
      continue;
    best = &record;
    value = found;
  }
  require_data(best != nullptr, "reading '", dir.string(), "': ", metric.name, " of the validation samples was never ",
               "finite");
  return json_text(Json{{"value", value}, {"epoch", best->epoch}, {"step", best->step}});
}

/// The options `sweep.KEY`, and their values.
using Texts = std::deque<std::pair<std::string, std::string>>;

/// The search over the ranges of these options. errors  Error (usage): names the option, and what is allowed
std::unique_ptr<Search> read_space(const Options& options, const Texts& texts, const RunConfig& config,
                                   const SearchMethod& method) {
  std::vector<SearchRange> ranges;
  std::vector<std::string> seeds = {""};
  for (const auto& [name, text] : texts) {
    std::string key = name.substr(name.find('.') + 1);
    for (const auto& [spelling, means] : options.spellings())
      if (spelling == "--" + key) key = means;
    for (const char* fixed : {"run.", "dist.", "checkpoint.", "eval.", "model.kind", "data.path"})
      if (key.starts_with(fixed) && key != "run.seed")
        options.reject(name, join(key, " does not decide what a network learns, so a search cannot compare it"));
    const SearchRange& range = ranges.emplace_back(key, text, options.knows(key) && options.accepted(key) == "N");
    require_usage(std::ranges::count(ranges, key, &SearchRange::key) == 1, "option ", name, ": ", key,
                  " has two ranges");
    for (const std::string& value : range.ends()) {
      RunConfig checked;
      Options table("lockstep sweep");
      add_options(table, checked, config.model_kind);
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
  return std::make_unique<Search>(std::move(ranges), std::move(seeds), method, config);
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

/// The most frequent messages of trainings that have failed.
std::string common_failures(const TrainingEnds& ends) {
  constexpr std::size_t kMessages = 3;
  std::map<std::string, int> counts;
  for (const auto& [name, end] : ends)
    if (end.code != kExitDone) ++counts[end.text];
  std::vector<std::pair<std::string, int>> order(counts.begin(), counts.end());
  std::ranges::stable_sort(order, std::greater(), &std::pair<std::string, int>::second);
  order.resize(std::min(kMessages, order.size()));
  return listed(order, "", [](const auto& message) { return join("\n  ", message.second, " times: ", message.first); });
}

/// How to compare the best configuration with the one that the options have without the search, if that is among them.
std::string comparison(const Options& options, const Search& search, std::size_t best, const fs::path& dir) {
  for (std::size_t c = 0; c < search.size(); ++c) {
    const auto is_set = [&](const auto& change) { return options.value(change.first) == change.second; };
    if (!std::ranges::all_of(search.changes(c), is_set)) continue;
    if (c == best) return "the best configuration is that of the file";
    std::string command = "paired comparison with the configuration of the file: lockstep compare --split val";
    for (const std::size_t of : {c, best})
      for (std::size_t s = 0; s < search.seeds().size(); ++s)
        command += " " + (dir / search.training(of, s, 0).folder).string();
    return search.seeds().size() > 1 ? command : "";
  }
  return "";
}

Json json_of(const Changes& changes) { return Json::object_t(changes.begin(), changes.end()); }

/// What has become of a configuration with one seed, at all rungs.
Json trial_of(const Search& search, std::size_t c, std::size_t seed, const TrainingEnds& ends) {
  Json trial = {{"folder", search.training(c, seed, 0).folder}, {"values", json_of(search.changes(c))}};
  if (search.seeds().size() > 1) trial["seed"] = search.seeds()[seed];
  for (const std::int64_t rung : search.rungs()) {
    const auto found = ends.find(search.training(c, seed, rung).name());
    if (found == ends.end()) continue;
    const auto& [code, text] = found->second;
    Json& result = trial["results"].emplace_back(Json{{"until_epoch", rung}});
    result.update(code == kExitDone ? parse_ordered_json(text) : Json{{"failed", text}});
  }
  return trial;
}

/// Writes the results of a search, for people and programs. errors  Error (internal): all trainings have failed
void write_results(const Options& options, const RunConfig& config, const Search& search, const TrainingEnds& ends,
                   const std::string& method, const Metric& metric) {
  const std::vector<Standing> order = search.ranking(ends);
  require(!order.empty(), "searching: all trainings have failed:", common_failures(ends));
  const std::vector<SearchRange>& ranges = search.ranges();
  const bool several = search.seeds().size() > 1;
  const auto score = [](const Standing& one) { return one.score.value; };
  const auto [low, high] = std::ranges::minmax(order, {}, score);
  const double least = score(low), span = score(high) - least;
  const auto place = [&](double value) {
    const double above = span > 0 ? (value - least) / span : 1;
    return metric.larger_is_better ? above : 1 - above;
  };

  ReportTable table{.title = join("Best configurations by ", metric.name), .columns = {"place"}, .rows = {}};
  ReportTable importance{
      .title = "Importance: share of the variance of the ranks (main effects, Kelley's epsilon squared)",
      .columns = {"key", "share"},
      .rows = {}};
  Json shares = Json::object(), ranking = Json::array(), trials = Json::array();
  std::vector<ParallelAxis> axes;
  const std::vector<std::optional<double>> found = search.importances(ends);
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    const std::string& key = ranges[k].key();
    table.columns.push_back(key);
    importance.rows.push_back(
        {key, found[k] ? printed("%.3f", *found[k]) : "not estimable: each value was tried once"});
    shares[key] = found[k] ? Json(*found[k]) : Json();
    ParallelAxis& axis = axes.emplace_back(ParallelAxis{key});
    for (const std::string& value : ranges[k].ends()) axis.marks.emplace_back(ranges[k].place(value), value);
  }
  table.columns.push_back(metric.name);
  if (several) table.columns.emplace_back("95 % +-");
  table.columns.emplace_back("trial");
  axes.push_back({metric.name});
  for (const double value : {least, least + span}) axes.back().marks.emplace_back(place(value), printed("%.4g", value));
  std::vector<std::string> notes;
  for (const auto& [c, rung, its] : order) {
    const Changes& changes = search.changes(c);
    const std::string folder = search.training(c, 0, 0).folder, value = printed("%.6g", its.value);
    Json& of_all =
        ranking.emplace_back(Json{{"folder", folder}, {"values", json_of(changes)}, {metric.name, its.value}});
    if (several) of_all.update({{"deviation", its.deviation}, {"interval_95", {its.low, its.high}}});
    notes.push_back(join(text_of(changes), ": ", metric.name, " ", value));
    std::vector<std::string> row = {std::to_string(notes.size())};
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      axes[k].places.push_back(ranges[k].place(changes[k].second));
      row.push_back(changes[k].second);
    }
    axes.back().places.push_back(place(its.value));
    row.push_back(value);
    if (several) row.push_back(printed("%.2g", its.half_width()));
    row.push_back(folder);
    if (table.rows.size() < kShown) table.rows.push_back(std::move(row));
  }
  for (std::size_t c = 0; c < search.size(); ++c)
    for (std::size_t s = 0; s < search.seeds().size(); ++s) trials.push_back(trial_of(search, c, s, ends));

  const fs::path dir = config.run.dir;
  const std::string data_file = fs::path(config.data.path).filename().string();
  const std::string of = join(" of ", search.size(), " configurations");
  const Standing& best = order.front();
  write_text_atomically(dir / "sweep.json", line_of({{"data", config.data.path},
                                                     {"method", method},
                                                     {"metric", metric.name},
                                                     {"larger_is_better", metric.larger_is_better},
                                                     {"importance", shares},
                                                     {"ranking", ranking},
                                                     {"trials", trials}},
                                                    1));
  const Training winner = search.training(best.configuration, 0, best.rung);
  write_text_atomically(dir / "best.ini",
                        ini_of(*make_training(options, config, winner.changes, ""),
                               join("the best", of, ": ", metric.name, " = ", printed("%.6g", best.score.value))));
  const std::string what = join("search over ", search.size(), " configurations of ", data_file);
  RunLog report(dir, {.title = what,
                      .config = config.text,
                      .facts = {{"data", config.data.path},
                                {"method", method},
                                {"best", text_of(search.changes(best.configuration))}}});
  log::info("best configurations", table_text(table));
  const Json trained = parse_ordered_json(ends.at(winner.name()).text);
  EvalRecord record;
  record.step = trained.at("step");
  record.epoch = trained.at("epoch");
  record.split = "validation";
  record.metrics = {{metric.name, best.score.value, metric.larger_is_better}};
  record.protocol = "validation, best" + of;
  record.data_file = data_file;
  report.record(record);
  report.add(table);
  if (!ranges.empty()) {
    log::info("importance of the keys", table_text(importance));
    report.add(importance);
    report.add(ReportPicture{"All configurations", parallel_axes_svg(axes, notes, kShown)});
  }
  report.made(dir / "sweep.json", "all results");
  report.made(dir / "best.ini", "the best configuration, for lockstep train --config");
  report.finish(join("finished the ", what));
  if (const std::string how = comparison(options, search, best.configuration, dir); !how.empty()) log::info(how);
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
  Texts texts;
  if (help_argument(args).empty())
    for (const std::string& key : keys_of_section(world, args, "sweep"))
      if (!options.knows(key)) options.add(key, &texts.emplace_back(key, "").second, "", "values of " + key.substr(6));
  if (!parse(world, options, args, config)) return 0;
  campaign.first_weights = complete(world, config, options, args);
  std::unique_ptr<Search> search;
  std::unique_ptr<NestedRun> base;
  world.together("checking the configuration", [&] {
    check(config);
    if (config.resumes_file()) options.reject("run.resume", "each trial has its own checkpoints; choose auto or never");
    if (method.name == "halving" && config.train.steps > 0)
      options.reject("train.steps", "halving counts in epochs; set train.epochs");
    search = read_space(options, texts, config, method);
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
  campaign.data = make_node_data_memory(world, base->config.row_options());
  Metric decides;
  world.together("choosing the metric", [&] {
    const auto task = load_task(world, base->config, *campaign.data);
    decides = deciding_metric(base->config, *task);
    campaign.data_hash = hex64(task->data_hash());
    if (world.rank() == 0 && task->validates_on_test())
      log::warning(config.data.path,
                   ": it has no validation samples, so the test samples choose the best configuration, "
                   "and its metrics on them are optimistic");
  });
  method.larger_is_better = decides.larger_is_better;
  campaign.plan = [&](const TrainingEnds& ends) { return search->plan(ends); };
  campaign.result = [&](const fs::path& dir, const Training& t) { return best_of(dir, t, decides); };
  campaign.many = true;
  log::info(method.name, ": ", search->size(), " configurations",
            search->seeds().size() > 1 ? join(" with ", search->seeds().size(), " seeds each") : "", " on ",
            world.size(), world.size() == 1 ? " rank" : " ranks", ", ", campaign.ranks_per_run, " per training");
  TrainingEnds ends;
  const int code = train_campaign(world, base->options, base->config, campaign, ends);
  world.together("writing the results of the search", [&] {
    if (world.rank() != 0) return;
    if (code == kExitDone)
      write_results(options, config, *search, ends, method.name, decides);
    else
      log::info(ends.size(), " trainings are finished; the same command continues");
  });
  return code;
}

}  // namespace lockstep::apps
