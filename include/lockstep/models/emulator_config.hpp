#pragma once
#include <string>

#include "lockstep/models/emulator_model.hpp"
#include "lockstep/models/model_config.hpp"

namespace lockstep {

/// Options of the emulator: `model.*` its architecture, `loss.*` what is minimised.
class EmulatorConfig final : public ModelConfig {
 public:
  void add_options(Options& options) override;
  bool has_diagnostics() const override { return true; }
  std::unique_ptr<Model> load(const ModelSource& source) const override;
  ModelNeeds needs(const std::filesystem::path& path, DType dtype) const override;
  /// For data of other origin than a prepared file.
  EmulatorModel::Options model_options(DType dtype, std::uint64_t seed) const;

 private:
  EmulatorArch arch_;
  bool convolution_ = false;
  EmulatorLoss loss_;
  std::string bias_init_;
};

}  // namespace lockstep
