#pragma once
#include <string>

#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

struct RunConfig;

/// Options of the sequence models: `model.*` for the network, `loss.*` for its penalty, `eval.*` for the ranking of
/// held-out items. The public code's option names are aliases.
class SequenceConfig : public TaskConfig {
 public:
  SequenceConfig() = default;
  void add_options(Options& options) override;
  const char* preparation() const override { return "lockstep-prep sequences --input FILE"; }
  void check() const override;
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// errors  usage: the program of dist.items = shard does not support the options of this run
  void require_supported(const RunConfig& config, int ranks) const override;
  /// The task options. errors  usage: values that are invalid together
  SequenceTask::Options model_options(DType dtype, std::uint64_t seed) const;

 protected:
  explicit SequenceConfig(bool timed) { arch_.timed = timed; }

 private:
  SasRecArch arch_;
  RankingOptions ranking_;
  std::string l2_tables_, initial_, candidates_, items_;
};

class TiSasRecConfig final : public SequenceConfig {
 public:
  TiSasRecConfig() : SequenceConfig(true) {}
};

}  // namespace lockstep
