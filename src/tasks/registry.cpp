#include "lockstep/tasks/registry.hpp"

#include <algorithm>
#include <concepts>

#include "lockstep/base/text.hpp"
#include "lockstep/tasks/emulator/emulator_config.hpp"
#include "lockstep/tasks/har/har_config.hpp"
#include "lockstep/tasks/hrm/hrm_config.hpp"
#include "lockstep/tasks/kgat/kgat_config.hpp"
#include "lockstep/tasks/sequences/sequence_config.hpp"
#include "lockstep/train/ensemble.hpp"

namespace lockstep {

// Prediction, verification and exchange of weights are defined in each kind's folder, in <kind>_predict.cpp,
// <kind>_verify.cpp and <kind>_exchange.cpp.
using Predict = int(World&, const Args&);
Predict predict_emulator, predict_har, predict_hrm, predict_kgat, predict_sequence;
using Verify = void(World&, const H5File&, const VerifyOptions&, ReferenceReport&);
Verify verify_emulator, verify_har, verify_hrm, verify_kgat, verify_sequence;
using Exchange = WeightExchange();
Exchange exchange_bprmf, exchange_emulator, exchange_har, exchange_hrm, exchange_kgat, exchange_sequence;

namespace {

template <class Ability, class OwnTask>
constexpr auto ability() -> Ability& (*)(Task&) {
  if constexpr (std::derived_from<OwnTask, Ability>) return [](Task& task) -> Ability& { return own<OwnTask>(task); };
  return nullptr;
}

/// Adds what follows from the kind's own types. Config::load() makes an OwnTask.
template <class Config, class OwnTask>
constexpr TaskKind kind(TaskKind kind) {
  kind.make_config = []() -> std::unique_ptr<TaskConfig> { return std::make_unique<Config>(); };
  kind.samples = ability<SampleTask, OwnTask>();
  kind.ensemble = ability<EnsembleTask, OwnTask>();
  return kind;
}

/// A new kind is one entry here and one folder in tasks/ (docs/adding-a-model.md).
constexpr TaskKind kKinds[] = {
    kind<EmulatorConfig, EmulatorTask>({"emulator", "emulator-icecolumn",
                                        "outputs of a column model from its state, with exact Jacobians",
                                        predict_emulator, exchange_emulator, verify_emulator}),
    kind<HarConfig, HarTask>(
        {"har", "har-synth", "activity in a window of sensor signals", predict_har, exchange_har, verify_har}),
    kind<HrmConfig, HrmTask>({"hrm", "hrm-laptop", "solution of a puzzle (Sudoku, maze, ARC), by HRM or TRM",
                              predict_hrm, exchange_hrm, verify_hrm}),
    kind<KgatConfig, KgatTask>({"kgat", "kgat-ml1m", "items for a user, from interactions and a knowledge graph",
                                predict_kgat, exchange_kgat, verify_kgat}),
    kind<BprmfConfig, BprmfTask>({"bprmf", "bprmf-ml1m",
                                  "items for a user, from interactions alone; can train kgat's initial tables",
                                  predict_kgat, exchange_bprmf}),
    kind<SequenceConfig, SequenceTask>({"sasrec", "sasrec-ml1m", "next item of a user's history, from its order",
                                        predict_sequence, exchange_sequence, verify_sequence}),
    kind<TiSasRecConfig, SequenceTask>({"tisasrec", "tisasrec-ml1m",
                                        "next item of a user's history, from its order and times", predict_sequence,
                                        exchange_sequence, verify_sequence}),
};

}  // namespace

std::span<const TaskKind> task_kinds() { return kKinds; }

std::vector<std::string> task_kind_names() {
  std::vector<std::string> names;
  for (const TaskKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::vector<std::string> common_keys() {
  std::vector<std::string> common;
  for (const TaskKind& kind : kKinds) {
    RunConfig config;
    Options table("");
    add_options(table, config, kind.name);
    const std::vector<std::string> keys = table.keys();
    if (common.empty()) common = keys;
    std::erase_if(common, [&](const std::string& key) { return std::ranges::find(keys, key) == keys.end(); });
  }
  return common;
}

const TaskKind& task_kind(const std::string& name) {
  for (const TaskKind& kind : kKinds)
    if (name == kind.name) return kind;
  const std::string near = nearest(name, task_kind_names());
  throw Error(Fault::usage, join("option model.kind = ", name, ": must be one of ", listed(task_kind_names()),
                                 near.empty() ? "" : "; did you mean " + near + "?"));
}

void add_options(Options& options, RunConfig& config, const std::string& kind) {
  add_options(options, config, kind, task_kind(kind).make_config(), task_kind_names());
  options.explain_unknown([kind](const std::string& name) {
    if (name == "batch.scope")
      return std::string("; batch.size counts the samples of all ranks, batch.per_rank those of each");
    std::string others;
    for (const TaskKind& other : kKinds) {
      RunConfig its;
      Options table("");
      add_options(table, its, other.name, other.make_config(), task_kind_names());
      if (table.knows(name)) others += join(others.empty() ? "" : ", ", other.name);
    }
    return others.empty() ? "" : join(" for model.kind = ", kind, "; it is a key of ", others);
  });
}

}  // namespace lockstep
