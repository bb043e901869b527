#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/item_ranker.hpp"
#include "lockstep/models/kgat.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/models/ranking_metrics.hpp"
#include "lockstep/ops/top_items.hpp"

namespace lockstep {

/// The users of a data set that a split judges: those with an item in it. Without validation items, validation looks at
/// the test items, as the reference programs do.
class JudgedUsers {
 public:
  explicit JudgedUsers(const KgData& data);
  const std::vector<std::int32_t>& users(Split split) const { return users_[static_cast<std::size_t>(split)]; }
  const UserItems& items(Split split) const { return *items_[static_cast<std::size_t>(split)]; }

 private:
  std::array<std::vector<std::int32_t>, 3> users_;
  std::array<const UserItems*, 3> items_;
};

/// Ranks all items for users [first, first + count) of a split by inner products, leaves out their training items, and
/// adds the figures to sums. Rows of `users` belong to these users.
void judge(const KgData& data, const JudgedUsers& judged, const RankingMetrics& ranking, const ops::ItemTable& items,
           const Tensor& users, Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums);

/// What the adjacency starts with.
enum class FirstAdjacency : std::uint8_t { random_walk, symmetric, symmetric_upstream, attention };

/// KGAT with its data: parameters, propagation, ranking. Trained by KgatProgram, not by shards.
class KgatModel final : public Model, public ItemRanker {
 public:
  struct Options {
    KgatArch arch;  ///< sizes of the data are filled in
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    FirstAdjacency laplacian = FirstAdjacency::random_walk;
    ops::ParallelEdges parallel_edges = ops::ParallelEdges::per_triple;
    bool attention = true;                ///< refreshed after each epoch; otherwise the first adjacency stays
    bool triples = true;                  ///< the loss of triples is trained too
    std::vector<double> message_dropout;  ///< per layer
    double node_dropout = 0;
    std::optional<DType> storage;  ///< bf16, f16: what products read the embeddings as
    double cf_l2 = 1e-5, kg_l2 = 1e-5;
    std::int64_t kg_batch = 0;  ///< samples of a triples' step, per `batch.scope`; 0: twice those of the other
    std::vector<std::int64_t> cutoffs = {20, 40, 60, 80, 100};
    std::optional<KgatMode> mode;  ///< of a training step; none: chosen by what it costs
    std::string pretrained;        ///< a file with user_embed and item_embed; "": none
    double pretrained_scale = 1;   ///< what they are multiplied by
  };
  /// errors  Error (usage): options that contradict each other; (data): pre-trained tables of other sizes
  KgatModel(Options options, KgData data);

  const Options& options() const { return options_; }
  const KgData& data() const override { return data_; }
  Kgat& net() { return *net_; }
  KgatPropagation& propagation() { return *propagation_; }
  const char* kind() const override { return "kgat"; }
  ParamStore& params() override { return net_->params(); }
  void move_to(Device device) override;
  /// Interactions; of validation and test, users.
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t sum_count() const override { return ranking_.sum_count(); }
  void begin_evaluation() override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split, const std::vector<double>& sums) const override { return ranking_.metrics(sums); }
  std::vector<std::vector<RankedItem>> suggest(std::span<const std::int64_t> users, std::int64_t count) override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

 private:
  void load_pretrained();
  /// The layers of all nodes from the present weights; their side by side rows of all items.
  OwnedTensor propagate();

  Options options_;
  KgData data_;
  std::unique_ptr<Kgat> net_;
  std::unique_ptr<KgatPropagation> propagation_;
  RankingMetrics ranking_;
  JudgedUsers judged_;
  ops::ItemTable items_;  ///< of the evaluation under way
};

}  // namespace lockstep
