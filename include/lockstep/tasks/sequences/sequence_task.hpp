#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/sequences/sasrec.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "lockstep/tasks/sequences/sequence_sampler.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

/// The group of a checkpoint that describes the network. Its attribute `items` is the size of the catalogue.
inline constexpr const char* kSequenceGroup = "/sequence_model";

/// How held-out items are ranked.
struct RankingOptions {
  bool full = false;                    ///< against all Rivals; false: against drawn ones
  bool both = false;                    ///< report the other of the two rankings as well
  std::int64_t candidates = 100;        ///< items to draw
  std::vector<std::int64_t> at = {10};  ///< the K of NDCG@K, HR@K and MRR@K
  std::int64_t users = 0;               ///< users to evaluate, drawn once; 0: all
  Repeats repeats = Repeats::drop;      ///< of held-out items
  bool operator==(const RankingOptions&) const = default;
};

/// A sequence model and its data set. A training sample is a user's newest window; its weight is the number of targets.
///
/// Metrics: for each K, ndcg@K, hr@K and mrr@K, the means over users of [p < K] / log2(p + 2), [p < K] and
/// [p < K] / (p + 1), where p is the number of candidates with a greater score than the held-out item; loss, the binary
/// cross-entropy of the item plus the mean one of the candidates; ties, the share of candidates with the same score as
/// the item (1 for a constant model); candidates, their mean number, which tells the rankings apart. With
/// RankingOptions::both, the ndcg, hr and mrr of the other ranking follow, with its name: "full.ndcg@10",
/// "sampled-100.ndcg@10".
class SequenceTask : public ShardTask {
 public:
  struct Options {
    SasRecArch arch = {};  ///< the data set determines items
    RankingOptions ranking = {};
    bool shard_items = false;  ///< dist.items = shard
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
  };
  /// errors  usage: see SasRecArch::check; a timed model and a data set without times. data: Repeats::refuse, and a
  ///         held-out item that the user had before
  SequenceTask(Options options, SequenceData data);

  const char* kind() const override { return network_.arch().timed ? "tisasrec" : "sasrec"; }
  ParamStore& params() override { return network_.params(); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  const DrawnShard& draw(Arena& host, const Shard& shard) const override;
  bool draws() const override { return true; }
  RowSource* row_source() const override { return data_.item.source(); }
  void reads(const Shard& shard, std::vector<std::int64_t>& rows) const override;
  void reads(Split split, std::int64_t first, std::int64_t count, std::vector<std::int64_t>& rows) const override {
    for (std::int64_t i = first; i < first + count; ++i) rows.push_back(evaluated_user(split, i));
  }
  /// On a GPU with enough free memory the histories move, too, and the batches of draw() are made there.
  void move_to(Device device) override;
  /// The tokens of the windows, which differ from batch to batch unless windows are padded.
  RowCounts count_rows(const Shard& shard, std::span<std::int64_t> each) const override;
  /// The batch of loss(), made by the host.
  SequenceBatch batch(Arena& arena, const Shard& shard) const;
  /// The batch of loss(): from shard.drawn, or made by the host.
  SequenceBatch batch(Tape& tape, const Shard& shard) const;
  /// The item table in the parts of the softmax's sums, then all other parameters.
  std::vector<FlatRange> norm_ranges() override;
  /// ItemShardProgram with Options::shard_items, else ShardedProgram.
  std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) override;
  bool evaluates(Split split) const override { return split != Split::train; }
  std::int64_t sum_count() const override {
    return 4 + (options_.ranking.both ? 6 : 3) * static_cast<std::int64_t>(options_.ranking.at.size());
  }
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  /// At most 64 users, and 2^23 scores of all items.
  std::int64_t evaluation_block() const override { return evaluation_block(data_.n_items); }
  static std::int64_t evaluation_block(std::int64_t items) {
    return std::clamp<std::int64_t>((std::int64_t{1} << 23) / (items + 1), 1, 64);
  }
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  /// "2999 users, full ranking of 3266 items, known items left out", then the users who are not evaluated, and the
  /// items without training.
  std::string protocol(Split split) const override;
  /// With the loss bce: that others rank better.
  std::vector<std::pair<std::string, std::string>> facts() const override;
  /// The most popular items: by training interactions, ties to the smaller number.
  std::vector<Baseline> baselines() const override;
  std::int64_t samples_in_cache() const override { return samples_in_cache(network_.arch()); }
  /// The number of samples with 40,000 features. 0 for losses over many items, whose cost the targets of a shard share.
  static std::int64_t samples_in_cache(const SasRecArch& arch);
  std::int64_t least_tree_shard() const override { return least_tree_shard(network_.arch()); }
  static std::int64_t least_tree_shard(const SasRecArch& arch);
  /// Mean over the training windows; attention counts only the keys that a query sees.
  SampleWork work() const override { return {flops_per_sample_}; }
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }
  bool tied_to_data() const override { return true; }

  SasRec& network() { return network_; }
  const SasRec& network() const { return network_; }
  const SequenceData& data() const { return data_; }
  Repeats repeats() const { return options_.ranking.repeats; }
  /// The number of items that occur in no training interaction.
  std::int64_t untrained_items() const { return std::count(counts_.begin() + 1, counts_.end(), 0); }

  /// States of histories, each of at least one item: the features (B, C) after its newest item. Their products with the
  /// item table are the scores. In the tape's arena.
  Tensor states(Tape& tape, std::span<const UserHistory> histories) const;

 private:
  /// The users of samples [first, first + count), and for each the target and then the items drawn as candidates, i32
  /// (count, 1 + candidates); 0 where there are no more.
  struct Ranked {
    std::span<const std::int64_t> users;
    Tensor items;
  };
  Ranked ranked(Tape& tape, Split split, std::int64_t first, std::int64_t count) const;
  /// Adds the users' metrics to the sums. On the host: scores  of ranked.items;  everything  (users, I + 1) scores of
  /// all items if a ranking has them as candidates, else empty
  void add(const Ranked& ranked, const Tensor& scores, const Tensor& everything, double* sums) const;

  Rivals rivals() const { return {data_, options_.ranking.repeats}; }
  /// Chooses the users of the validation and test splits. Collective unless all rows are here.
  void choose_evaluated();
  /// The user of an evaluation's sample.
  std::int64_t evaluated_user(Split split, std::int64_t sample) const;
  bool ranks_all() const { return options_.ranking.full || options_.ranking.both; }
  bool ranks_drawn() const { return !options_.ranking.full || options_.ranking.both; }
  /// "full" or "sampled-100".
  std::string name_of(bool full) const;

  struct Drawn;
  /// The histories in GPU memory.
  struct OnGpu {
    Resident<ops::HistorySample> samples;
    Resident<std::int32_t> items, known;
    Resident<std::int64_t> times;
    Resident<double> up_to, biases;
  };
  SequenceBatch windows_on_gpu(Tape& tape, const Shard& shard, const Drawn& drawn) const;

  Options options_;
  SequenceData data_;
  SasRec network_;
  std::vector<std::int64_t> counts_;  ///< SequenceData::training_counts()
  PopularItems popular_;              ///< of sampled_softmax
  struct Evaluated {
    std::vector<std::int32_t> users;
    std::string notes;  ///< the end of the protocol
  };
  std::array<Evaluated, 3> evaluated_;  ///< by split; nobody for training
  std::optional<OnGpu> on_gpu_;
  double flops_per_sample_ = 0;
};

}  // namespace lockstep
