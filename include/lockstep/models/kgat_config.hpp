#pragma once
#include <string>
#include <vector>

#include "lockstep/models/bprmf.hpp"
#include "lockstep/models/kgat_model.hpp"
#include "lockstep/models/model_config.hpp"

namespace lockstep {

/// Options of `model.kind = kgat`.
class KgatConfig final : public ModelConfig {
 public:
  void add_options(Options& options) override;
  void check() const override;
  std::unique_ptr<Model> load(const ModelSource& source) const override;
  ModelNeeds needs(const std::filesystem::path& path, DType dtype) const override;

 private:
  KgatModel::Options resolved() const;
  KgatModel::Options model_;
  std::vector<double> conv_dims_, cutoffs_;
  std::string aggregator_, laplacian_, parallel_edges_, storage_, mode_;
};

/// Options of `model.kind = bprmf`.
class BprmfConfig final : public ModelConfig {
 public:
  void add_options(Options& options) override;
  void check() const override;
  std::unique_ptr<Model> load(const ModelSource& source) const override;
  ModelNeeds needs(const std::filesystem::path& path, DType dtype) const override;

 private:
  BprmfModel::Options model_;
  std::vector<double> cutoffs_;
};

}  // namespace lockstep
