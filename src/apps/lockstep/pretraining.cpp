#include "apps/lockstep/pretraining.hpp"

#include <filesystem>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

std::unique_ptr<PretrainingConfig> make_pretraining(const Options& options, const RunConfig& config) {
  const std::optional<Pretraining> first = config.task->pretraining();
  if (!first) return nullptr;
  require_usage(config.run.init.empty(), "option run.init = ", config.run.init, ": the pretraining of kind ",
                first->kind, " gives the first weights; choose one of both");
  auto run = std::make_unique<PretrainingConfig>();
  add_options(run->options, run->config, first->kind);
  std::map<std::string, std::string> values;
  for (const std::string& key : options.keys()) values[key] = options.value(key);
  for (const auto& [key, value] : first->keys) values[key] = value;
  values["model.kind"] = first->kind;
  if (is_half(config.storage())) values["run.precision"] = "fp32";
  std::string ini;
  for (const std::string& key : run->options.keys())
    if (values.count(key) != 0) ini += key + " = " + values[key] + "\n";
  run->options.parse_ini(ini, "pretraining");
  run->config.run.dir = (std::filesystem::path(config.run.dir) / kPretrainingFolder).string();
  run->config.run.resume = "auto";
  run->config.train.steps = 0;
  check(run->config);
  run->config.text = run->options.ini();
  return run;
}

}  // namespace lockstep::apps
