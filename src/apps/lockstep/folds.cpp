#include <algorithm>
#include <filesystem>
#include <map>

#include "apps/lockstep/campaign.hpp"
#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/describe.hpp"
#include "apps/lockstep/training_run.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/heat_map.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/report/statistics.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/tasks/har/har_config.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

/// The last evaluation of the test samples in a text of records. errors  Error (data): `source` has none
EvalRecord last_test(const std::string& text, const std::string& source) {
  EvalRecord last;
  read_records(text, [&](RunRecord record) {
    if (auto* found = std::get_if<EvalRecord>(&record); found != nullptr && found->split == "test")
      last = std::move(*found);
    return true;
  });
  require_data(last.split == "test", "reading '", source, "': it has no record of the test samples");
  return last;
}

/// The line of the last evaluation of the test samples in a fold's metrics.jsonl.
std::string test_record(const fs::path& dir) {
  const fs::path file = dir / kMetricsFile;
  return record_line(last_test(read_text_file(file), file.string()));
}

/// The confusion matrix of a fold. errors  Error (data): it has none, or one of other classes than `like`, unless that
/// is empty
const MetricTable& confusion_of(const EvalRecord& fold, const std::string& directory, const MetricTable& like) {
  const auto found = std::ranges::find(fold.tables, "confusion", &MetricTable::name);
  require_data(found != fold.tables.end() && (like.rows.empty() || found->rows == like.rows), "summing up '", directory,
               "': its record of the test samples has no confusion matrix of the classes of the first fold; train it "
               "again with --resume never");
  return *found;
}

/// Writes folds.json and the report of all folds; prints their table. ends: with test_record() of each fold
void summarise(const RunConfig& config, const std::vector<std::string>& tests, const TrainingEnds& ends) {
  const std::size_t folds = tests.size();
  std::vector<EvalRecord> records;
  const auto folder = [](std::size_t fold) { return fold_folder(static_cast<std::int64_t>(fold + 1)); };
  for (std::size_t f = 0; f < folds; ++f) records.push_back(last_test(ends.at(folder(f)).text, folder(f)));
  Json out = {{"data", config.data.path}, {"folds", Json::array()}};
  std::map<std::string, std::vector<double>> values;
  MetricTable confusion;
  // Without the metrics of single classes: a fold can lack windows of a class.
  std::vector<std::string> names;
  for (const Metric& m : records.front().metrics)
    if (m.name.find('.') == std::string::npos) names.push_back(m.name);
  ReportTable table{.title = "Test samples of each fold", .columns = {"fold", "tests"}, .rows = {}};
  table.columns.insert(table.columns.end(), names.begin(), names.end());
  for (std::size_t f = 0; f < folds; ++f) {
    const EvalRecord& record = records[f];
    out["folds"].push_back({{"fold", f + 1},
                            {"tests", tests[f]},
                            {"directory", folder(f)},
                            {"step", record.step},
                            {"metrics", json_of(record.metrics)}});
    auto& row = table.rows.emplace_back(std::vector{std::to_string(f + 1), tests[f]});
    for (const std::string& name : names) {
      values[name].push_back(value_of(record.metrics, name));
      row.push_back(printed("%.4f", values[name].back()));
    }
    const MetricTable& part = confusion_of(record, folder(f), confusion);
    if (f == 0) confusion = {part.name, part.rows, part.columns, std::vector<double>(part.values.size())};
    for (std::size_t i = 0; i < part.values.size(); ++i) confusion.values[i] += part.values[i];
  }
  std::vector<std::string> mean = {"mean", ""}, deviation = {"deviation", ""}, interval = {"95 % interval", "+-"};
  EvalRecord summary;
  summary.step = records.front().step;
  summary.epoch = records.front().epoch;
  summary.split = "test";
  summary.tables = {confusion};
  summary.protocol = join("test, mean of ", folds, " folds");
  summary.data_file = records.front().data_file;
  std::string hashes;  // each fold is another division of the data set
  for (const EvalRecord& record : records) hashes += record.data_hash;
  summary.data_hash = hex64(hash64(hashes));
  summary.weights = records.front().weights;
  for (const std::string& name : names) {
    const MeanInterval m = mean_interval(values[name]);
    out["mean"][name] = m.value;
    out["deviation"][name] = m.deviation;
    out["interval_95"][name] = {m.low, m.high};
    mean.push_back(printed("%.4f", m.value));
    deviation.push_back(printed("%.4f", m.deviation));
    interval.push_back(printed("%.4f", m.half_width()));
    if (name == "loss") summary.loss = m.value;
    summary.metrics.push_back({name, m.value});
  }
  table.rows.insert(table.rows.end(), {mean, deviation, interval});
  const MetricTable classes = class_scores(confusion);
  for (const MetricTable& t : {confusion, classes})
    out[t.name] = {{"rows", t.rows}, {"columns", t.columns}, {"values", t.values}};
  write_text_atomically(fs::path(config.run.dir) / "folds.json", line_of(out, 1));

  RunLog report(config.run.dir, {.title = join(folds, " folds of ", fs::path(config.data.path).filename().string()),
                                 .config = config.text,
                                 .facts = {{"data", config.data.path}, {"folds", join(folds)}}});
  log::info("test samples of each fold", table_text(table));
  log::info("all folds together: ", text_of(confusion), text_of(classes));
  report.record(summary);
  report.add(std::move(table));
  report.add(ReportPicture{"All folds together: confusion", heat_map_svg(confusion)});
  for (std::size_t f = 0; f < folds; ++f)
    report.made(fs::path(config.run.dir) / folder(f) / "report.html", join("fold ", f + 1));
  report.made(fs::path(config.run.dir) / "folds.json", "metrics of each fold, mean, deviation, interval, sums");
  report.finish(join("finished after ", folds, " folds"));
}

}  // namespace

int run_folds(World& world, const Args& args) {
  RunConfig config;
  Options options(
      "lockstep folds", "Cross-validate: train each fold of data.folds, and summarise the test metrics.",
      "Each fold is a run of its own in the folder fold-N of the run directory, by default trained by one rank. A rank "
      "that is done takes the next fold; the result does not depend on the number of ranks. A fold tests the windows "
      "of its subjects and "
      "trains on all others. The same command continues after an interruption and keeps finished folds. At the end, "
      "folds.json and report.html have the metrics of each fold, mean, standard deviation, the 95 % interval of the "
      "mean by Student's t, and the summed confusion matrix.");
  options.example("mpirun -n 4 lockstep folds --config configs/har-hapt.ini --data.folds 5",
                  "five folds of subjects with nearly equal classes");
  options.example("mpirun -n 4 lockstep folds --config configs/har-hapt.ini --data.folds subjects",
                  "leave one subject out");
  Campaign campaign;
  add_ranks_per_run(options, &campaign.ranks_per_run, 1);
  if (!parse(world, options, args, config)) return 0;
  campaign.first_weights = complete(world, config, options, args);
  std::string text;
  world.together("checking the configuration", [&] {
    check(config);
    if (world.rank() != 0) return;
    require_usage(config.model_kind == "har", "option model.kind = ", config.model_kind,
                  ": lockstep folds is for model.kind = har");
    if (config.eval.final == "none") options.reject("eval.final", "the folds need the metrics of their test samples");
    if (config.dist.parallel == "dp") options.reject("dist.parallel", "one rank trains a fold; choose ddp");
    if (config.resumes_file()) options.reject("run.resume", "each fold has its own checkpoints; choose auto or never");
    if (options.value("data.fold") != "0")
      options.reject("data.fold", "lockstep folds trains all folds; lockstep train trains this one");
    const std::vector<std::string> tests = own<HarConfig>(*config.task).folds(config.data.path);
    if (tests.empty()) options.reject("data.folds", "lockstep folds needs a number of folds, or subjects");
    text = listed(tests, "\n");
    open_directory(config, options, TakeOver::no);
  });
  const auto tests = split(world.communicator().broadcast_text(text, 0, "folds"), '\n');

  log::info(tests.size(), " folds on ", world.size(), world.size() == 1 ? " rank" : " ranks");
  std::vector<Training> plan;
  for (std::size_t f = 0; f < tests.size(); ++f)
    plan.push_back({.folder = fold_folder(static_cast<std::int64_t>(f + 1)),
                    .title = join("fold ", f + 1, " of ", tests.size(), ": tests ", tests[f]),
                    .changes = {{"data.fold", std::to_string(f + 1)}}});
  campaign.plan = [&](const TrainingEnds&) { return plan; };
  campaign.result = [](const fs::path& dir, const Training&) { return test_record(dir); };
  TrainingEnds ends;
  const int code = train_campaign(world, options, config, campaign, ends);
  if (code != kExitDone) {
    const auto done = std::ranges::count(ends, kExitDone, [](const auto& end) { return end.second.code; });
    log::info(
        done, " of ", tests.size(), " folds are finished",
        code == kExitInterrupted ? "; the same command continues" : "; mend the error above, and repeat the command");
  }
  world.together("writing the summary of the folds", [&] {
    if (world.rank() == 0 && code == kExitDone) summarise(config, tests, ends);
  });
  return code;
}

}  // namespace lockstep::apps
