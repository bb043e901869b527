#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tasks/arguments.hpp"
#include "lockstep/tasks/verify.hpp"
#include "lockstep/tasks/weight_exchange.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

class EnsembleTask;
class SampleTask;

/// One value of model.kind, and the functions of the programs for it.
struct TaskKind {
  const char* name;
  const char* example;  ///< a configuration that trains it: configs/<example>.ini
  const char* summary;  ///< one line, as help texts show it
  /// `lockstep predict`; null: the kind has no prediction.
  int (*predict)(World&, const Args&) = nullptr;
  /// `lockstep export` and `lockstep import`; null: the parameters' own names, and no description.
  WeightExchange (*exchange)() = nullptr;
  /// `lockstep verify`: appends a row per array of the reference file; null: the kind has no reference files.
  void (*verify)(World&, const H5File&, const VerifyOptions&, ReferenceReport&) = nullptr;
  // From the kind's types:
  std::unique_ptr<TaskConfig> (*make_config)() = nullptr;
  /// The task as one with metrics of single samples, or that makes ensembles; null: tasks of the kind do not.
  SampleTask& (*samples)(Task&) = nullptr;
  EnsembleTask& (*ensemble)(Task&) = nullptr;
};

/// All kinds. The first one is the default of model.kind.
std::span<const TaskKind> task_kinds();
/// errors  Error (usage): an unknown kind; names the nearest known one
const TaskKind& task_kind(const std::string& name);
/// The names of the kinds, in order.
std::vector<std::string> task_kind_names();
/// The configuration keys that every kind has.
std::vector<std::string> common_keys();

/// The options of a run of this kind: the common ones and the kind's own, bound to `config`.
/// errors  Error (usage): an unknown kind
void add_options(Options& options, RunConfig& config, const std::string& kind);

}  // namespace lockstep
