#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/models/kgat_model.hpp"

namespace lockstep {

/// Matrix factorisation ranked pairwise: score(u, i) = user_embed_u . item_embed_i. The baseline of KGAT, and what
/// pre-trains it: its checkpoint is what `model.pretrain` names.
///
///   user_embed (users, d), item_embed (items, d): U(-b, b), b = sqrt(6 / (rows + d))
///
/// source   Rendle et al. 2009, "BPR: Bayesian Personalized Ranking from Implicit Feedback"
class BprmfModel final : public Model, public ItemRanker {
 public:
  struct Options {
    std::int64_t embed_dim = 64;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    double l2 = 1e-5;
    std::vector<std::int64_t> cutoffs = {20, 40, 60, 80, 100};
  };
  BprmfModel(Options options, KgData data);
  const Options& options() const { return options_; }
  const KgData& data() const override { return data_; }
  const Param& users() const { return *users_; }
  const Param& items() const { return *items_; }

  const char* kind() const override { return "bprmf"; }
  ParamStore& params() override { return params_; }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t sum_count() const override { return ranking_.sum_count(); }
  void begin_evaluation() override { packed_ = ops::ItemTable(items_->value); }
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split, const std::vector<double>& sums) const override { return ranking_.metrics(sums); }
  std::vector<std::vector<RankedItem>> suggest(std::span<const std::int64_t> users, std::int64_t count) override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

 private:
  Options options_;
  KgData data_;
  ParamStore params_;
  const Param *users_, *items_;
  RankingMetrics ranking_;
  JudgedUsers judged_;
  ops::ItemTable packed_;  ///< of the evaluation under way
};

}  // namespace lockstep
