#include "apps/lockstep/nested_runs.hpp"

#include <map>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/ensemble.hpp"

namespace lockstep::apps {

namespace {
/// A run of this kind in `folder` of the run directory: the keys that the kind also has, with some changes. It always
/// resumes: run.resume = never moves the whole run directory aside, with all of its folders.
std::unique_ptr<NestedRun> nested_run(const Options& options, const RunConfig& config, const std::string& kind,
                                      const Changes& changes, const std::string& folder) {
  auto run = std::make_unique<NestedRun>();
  add_options(run->options, run->config, kind);
  std::map<std::string, std::string> values;
  for (const IniEntry& entry : read_ini(options.ini(), folder)) values[entry.key] = entry.value;
  for (const auto& [key, value] : changes) values[key] = value;
  values["model.kind"] = kind;
  std::string ini;
  for (const std::string& key : run->options.keys())
    if (values.count(key) != 0) ini += ini_line(key, values[key]);
  run->options.parse_ini(ini, folder);
  run->config.run.dir = (std::filesystem::path(config.run.dir) / folder).string();
  run->config.run.resume = "auto";
  return run;
}

std::unique_ptr<NestedRun> checked(std::unique_ptr<NestedRun> run) {
  check(run->config);
  run->config.text = run->options.ini();
  return run;
}
}  // namespace

std::unique_ptr<NestedRun> make_pretraining(const Options& options, const RunConfig& config) {
  const std::optional<Pretraining> first = config.task->pretraining();
  if (!first) return nullptr;
  require_usage(config.run.init.empty(), "option run.init = ", config.run.init, ": the pretraining of kind ",
                first->kind, " provides the initial weights; choose one of the two");
  Changes changes = first->keys;
  if (is_half(config.storage())) changes.emplace_back("run.precision", "fp32");
  auto run = nested_run(options, config, first->kind, changes, kPretrainingFolder);
  run->config.train.steps = 0;
  return checked(std::move(run));
}

std::int64_t member_count(const Options& options) {
  return options.knows(kMembersKey) ? std::stoll(options.value(kMembersKey)) : 1;
}

std::unique_ptr<NestedRun> make_training(const Options& options, const RunConfig& config, const Changes& changes,
                                         const std::string& folder) {
  return checked(nested_run(options, config, config.model_kind, changes, folder));
}

bool has_finished(const std::filesystem::path& dir, const RunRecords& records) {
  const std::filesystem::path last = CheckpointFolder(dir).final_file();
  const std::filesystem::path folder = (dir / "").parent_path();  // without a slash at its end
  const std::string trial = join(R"("name":")", folder.filename().string(), R"(","code":0,)");
  return records.evaluated || read_if_there(folder.parent_path() / kCampaignFile).find(trial) != std::string::npos ||
         (std::filesystem::exists(last) && CheckpointReader(last, true).state().step >= records.step);
}

}  // namespace lockstep::apps
