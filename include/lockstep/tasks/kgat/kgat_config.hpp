#pragma once
#include <string>

#include "lockstep/tasks/kgat/bprmf_task.hpp"
#include "lockstep/tasks/kgat/kgat_task.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Options of `model.kind = kgat`.
class KgatConfig final : public TaskConfig {
 public:
  void add_options(Options& options) override;
  const char* preparation() const override { return "lockstep-prep kg --input DIR"; }
  void check() const override;
  std::optional<Pretraining> pretraining() const override;
  void require_supported(const RunConfig& config, int ranks) const override;
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// The task options. errors  usage: values that are invalid together
  KgatTask::Options resolved(DType dtype = DType::f32) const;

 private:
  KgatTask::Options model_;
  std::int64_t pretrain_epochs_ = 0;
  double pretrain_lr_ = 0, pretrain_l2_ = 0;
  std::string storage_, mode_;
};

/// Options of `model.kind = bprmf`.
class BprmfConfig final : public TaskConfig {
 public:
  void add_options(Options& options) override;
  const char* preparation() const override { return "lockstep-prep kg --input DIR"; }
  void check() const override;
  void require_supported(const RunConfig& config, int ranks) const override;
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;

 private:
  BprmfTask::Options model_;
};

}  // namespace lockstep
