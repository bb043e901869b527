#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/sequence_data.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/models/sasrec.hpp"

namespace lockstep {

/// How held-out items are ranked.
struct RankingOptions {
  bool full = false;                    ///< among all items outside the user's history; else among drawn ones
  std::int64_t candidates = 100;        ///< how many are drawn, with replacement, outside the user's history
  std::vector<std::int64_t> at = {10};  ///< the K of HR@K and NDCG@K
  std::int64_t users = 0;               ///< judge this many, drawn once; 0: all
  bool operator==(const RankingOptions&) const = default;
};

/// A sequence model with its data set, as the trainer sees it. A training sample is a user's newest window; its weight
/// is the number of targets.
///
/// Metrics, for each K: ndcg@K and hr@K, means over the users of [rank < K] / log2(rank + 2) and [rank < K], rank the
/// number of candidates with a greater score than the item; loss, the cross entropy of the item plus the mean one of
/// the candidates; ties, the part of the candidates with the very score of the item: a constant model has 1.
class SasRecModel : public Model {
 public:
  struct Options {
    SasRecArch arch = {};  ///< items is taken from the data
    RankingOptions ranking = {};
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
  };
  /// errors  usage: what SasRecArch::check finds; times are wanted and the data set has none
  SasRecModel(Options options, SequenceData data);

  const char* kind() const override { return network_.arch().timed ? "tisasrec" : "sasrec"; }
  ParamStore& params() override { return network_.params(); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t sum_count() const override { return 4 + 2 * static_cast<std::int64_t>(options_.ranking.at.size()); }
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::int64_t evaluation_block() const override { return 64; }
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  /// Of a window of mean length; each head's products with the keys that a query sees, no others.
  double flops_per_sample() const override { return flops_per_sample_; }
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

  const SasRec& network() const { return network_; }
  const SequenceData& data() const { return data_; }

  struct Suggestion {
    std::int32_t item;
    double score;
  };
  /// The `count` items outside the whole history of each user that the model expects next, best first.
  std::vector<std::vector<Suggestion>> suggest(Tape& tape, std::span<const std::int64_t> users,
                                               std::int64_t count) const;

 private:
  /// f after the newest token of each user.
  Tensor newest_features(Tape& tape, Seen seen, std::span<const std::int64_t> users) const;
  /// Scores of all items, (users, I + 1), on the host; those that a user knows, and item 0, are minus infinity.
  Tensor all_scores(Tape& tape, const Tensor& features, std::span<const std::int64_t> users) const;

  Options options_;
  SequenceData data_;
  SasRec network_;
  double flops_per_sample_ = 0;
};

/// Writes and reads what a checkpoint says of the network beside its weights: attributes of /sequence_model.
void save_sasrec_card(H5File& file, const SasRecArch& arch);
/// errors  data: missing, or not a card
SasRecArch read_sasrec_card(const H5File& file);

}  // namespace lockstep
