#pragma once
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Options of the emulator: `model.*` for the architecture, `loss.*` for the objective.
class EmulatorConfig final : public TaskConfig {
 public:
  void add_options(Options& options) override;
  const char* preparation() const override { return "lockstep-prep netcdf FILE..."; }
  bool has_diagnostics() const override { return true; }
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// The task options, for callers that bring their own data.
  EmulatorTask::Options model_options(DType dtype, std::uint64_t seed) const;

 private:
  EmulatorTask::Options model_;
  bool convolution_ = false;
  std::int64_t members_ = 1;
};

}  // namespace lockstep
