#pragma once
#include <string>

#include "lockstep/models/har_model.hpp"
#include "lockstep/models/model_config.hpp"

namespace lockstep {

/// Options of activity recognition: `model.*` the network, `augment.*` what is done to training windows, `data.percent`,
/// `loss.label_smoothing`.
class HarConfig final : public ModelConfig {
 public:
  void add_options(Options& options) override;
  void check() const override;
  std::unique_ptr<Model> load(const ModelSource& source) const override;
  ModelNeeds needs(const std::filesystem::path& path, DType dtype) const override;
  /// What a network for this data is, sizes that were left open filled in by its input.
  HarArch arch() const;

 private:
  HarArch arch_;
  HarAugment augment_;
  double smoothing_ = 0.1, percent_ = 100;
  std::string input_, mode_, pool_, mlp_norm_, hidden_, encoder_weights_;
};

}  // namespace lockstep
