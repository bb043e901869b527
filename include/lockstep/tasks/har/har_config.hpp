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
  /// Makes load() accept test windows without a label, for predictions.
  void accept_unlabelled() { labels_ = HarData::Labels::optional; }
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// The architecture; sizes left at their default depend on the kind of input.
  HarArch arch() const;

 private:
  HarData::Labels labels_ = HarData::Labels::required;
  HarArch arch_;
  HarAugment augment_;
  double smoothing_ = 0.1, percent_ = 100;
  std::string input_, mode_, pool_, mlp_norm_, hidden_, encoder_weights_;
};

}  // namespace lockstep
