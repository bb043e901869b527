#pragma once
#include <string>

#include "lockstep/tasks/har/har_task.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Options of activity recognition: `model.*` for the network, `augment.*` for training windows, `data.percent`,
/// `data.balance`, `data.folds`, `data.fold`, `loss.label_smoothing`.
class HarConfig final : public TaskConfig {
 public:
  void add_options(Options& options) override;
  const char* preparation() const override { return "lockstep-prep har FILE --rate HZ --window N"; }
  const char* published_precision() const override {
    return model_.arch.input == HarArch::Input::image ? "bf16" : "fp32";
  }
  void check() const override;
  std::unique_ptr<Task> load(const TaskSource& source) const override;
  /// The same with the windows that its weights were trained on, of which `where` has the weights; null: it has none.
  std::unique_ptr<Task> load(const TaskSource& source, const HarMetadata* trained, const std::string& where) const;
  /// Makes load() accept test windows without a label, and ignore data.folds: predictions use the splits of the file.
  void read_for_prediction();
  /// The subjects that each fold of data.folds tests; empty without folds. data.fold selects one of them, from 1.
  /// errors  as HarData::folds()
  std::vector<std::string> folds(const std::filesystem::path& path) const;
  TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const override;
  /// The architecture; sizes left at their default depend on the kind of input.
  HarArch arch() const;

 private:
  HarData::Labels labels_ = HarData::Labels::required;
  HarTask::Options model_;
  HarFolds folds_;
  std::string mlp_norm_, hidden_, encoder_weights_;
};

}  // namespace lockstep
