#pragma once
#include <string>

#include "lockstep/tasks/hrm/hrm_task.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Options of the hierarchical reasoning model, and the paper's defaults for common options.
class HrmConfig final : public TaskConfig {
 public:
  void add_options(Options& options) override;
  const char* preparation() const override { return "lockstep-prep hrm-npy --input DIR"; }
  const char* published_precision() const override { return "bf16"; }
  void check() const override;
  void require_supported(const RunConfig& config, int ranks) const override;
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  /// A task with the architecture of a checkpoint and no data, for HrmTask::solve(). The caller loads the weights.
  std::unique_ptr<HrmTask> load_trained(const H5File& checkpoint, DType dtype) const;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// The architecture without the sizes of a data set.
  const HrmArch& arch() const { return model_.arch; }
  /// Tries of an evaluation, without a seed.
  const Tries& tries() const { return model_.tries; }
  /// Segments of an evaluation.
  std::int64_t segments() const { return model_.eval_segments > 0 ? model_.eval_segments : model_.loss.halt_max_steps; }
  /// Whether a try ends when the network halts.
  bool halts() const { return model_.eval_halt; }

 private:
  HrmTask::Options model_options(DType dtype, std::uint64_t seed) const;
  HrmTask::Options model_;
  std::string depth_;
};

}  // namespace lockstep
