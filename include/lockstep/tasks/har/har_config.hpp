#pragma once
#include <string>

#include "lockstep/tasks/har/har_task.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Options of activity recognition: `model.*` for the network, `augment.*` for training windows, `data.percent`,
/// `loss.label_smoothing`.
class HarConfig final : public TaskConfig {
 public:
  void add_options(Options& options) override;
  void check() const override;
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  /// A task with the architecture and the normalisation of a checkpoint, for HarTask::classify() on `data`. The caller
  /// loads the weights. errors  data, one message with all differences: other classes, channels, units (where both are
  /// known), window length or sampling rate
  std::unique_ptr<HarTask> load_trained(const H5File& checkpoint, HarData data, DType dtype) const;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// The architecture; sizes left at their default depend on the kind of input.
  HarArch arch() const;

 private:
  HarTask::Options task_options(DType dtype, std::uint64_t seed) const;
  HarArch arch_;
  HarAugment augment_;
  double smoothing_ = 0.1, percent_ = 100;
  std::string input_, mode_, pool_, mlp_norm_, hidden_, encoder_weights_;
};

}  // namespace lockstep
