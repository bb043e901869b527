#pragma once
#include <string>
#include <vector>

#include "lockstep/models/model_config.hpp"
#include "lockstep/models/sasrec_model.hpp"

namespace lockstep {

/// Options of the sequence models: `model.*` the network, `loss.*` its penalty, `eval.*` how held-out items are ranked.
/// Public code's names of the same things are aliases.
class SasRecConfig : public ModelConfig {
 public:
  SasRecConfig() = default;
  void add_options(Options& options) override;
  void check() const override;
  std::unique_ptr<Model> load(const ModelSource& source) const override;
  ModelNeeds needs(const std::filesystem::path& path, DType dtype) const override;
  /// What the options amount to. errors  usage: what no single key can check
  SasRecModel::Options model_options(DType dtype, std::uint64_t seed) const;

 protected:
  explicit SasRecConfig(bool timed) { arch_.timed = timed; }

 private:
  SasRecArch arch_;
  RankingOptions ranking_;
  std::string norm_, pad_mask_, mhc_, time_dropout_, l2_tables_, initial_, candidates_;
  std::vector<double> at_;
};

class TiSasRecConfig final : public SasRecConfig {
 public:
  TiSasRecConfig() : SasRecConfig(true) {}
};

}  // namespace lockstep
