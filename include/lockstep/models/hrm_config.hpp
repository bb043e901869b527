#pragma once
#include <string>

#include "lockstep/models/hrm_model.hpp"
#include "lockstep/models/model_config.hpp"

namespace lockstep {

/// Options of the hierarchical reasoning model, and the defaults of its paper for common keys.
class HrmConfig final : public ModelConfig {
 public:
  void add_options(Options& options) override;
  void check() const override;
  std::unique_ptr<Model> load(const ModelSource& source) const override;
  /// The network of a checkpoint without any data: it solves given puzzles. Weights are still to be loaded.
  std::unique_ptr<HrmModel> load_trained(const H5File& checkpoint, DType dtype) const;
  ModelNeeds needs(const std::filesystem::path& path, DType dtype) const override;

 private:
  HrmModel::Options model_options(DType dtype, std::uint64_t seed) const;
  HrmModel::Options model_;
  std::string loss_;
};

}  // namespace lockstep
