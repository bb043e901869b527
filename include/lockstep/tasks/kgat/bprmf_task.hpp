#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/tasks/kgat/ranking_task.hpp"

namespace lockstep {

/// Matrix factorisation ranked pairwise: score(u, i) = user_embed_u . item_embed_i. The baseline of KGAT; its
/// checkpoint pre-trains KGAT (`model.pretrain`).
///
///   user_embed (users, d), item_embed (items, d): U(-b, b), b = sqrt(6 / (rows + d))
///
/// source   Rendle et al. 2009, "BPR: Bayesian Personalized Ranking from Implicit Feedback"
class BprmfTask final : public RankingTask {
 public:
  struct Options {
    std::int64_t embed_dim = 64;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    double l2 = 1e-5;
    std::vector<std::int64_t> cutoffs = {20, 40, 60, 80, 100};
  };
  BprmfTask(Options options, KgData data);
  const Options& options() const { return options_; }
  const Param& users() const { return *users_; }
  const Param& items() const { return *items_; }

  const char* kind() const override { return "bprmf"; }
  ParamStore& params() override { return params_; }
  std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) override;
  void save(H5File& file) const override;
  OwnedTensor item_rows() override;

 private:
  std::int64_t width() const override { return options_.embed_dim; }
  std::int64_t first_user() const override { return 0; }
  void user_rows(Stream& stream, std::span<const std::int32_t> list, const Tensor& rows) const override;

  Options options_;
  ParamStore params_;
  const Param *users_, *items_;
};

}  // namespace lockstep
