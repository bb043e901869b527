#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/ops/top_items.hpp"
#include "lockstep/tasks/kgat/kgat_data.hpp"
#include "lockstep/tasks/kgat/ranking_metrics.hpp"
#include "lockstep/train/sample_task.hpp"

namespace lockstep {

/// A task that ranks the items of a knowledge-graph data set for its users: a score is the inner product of the user's
/// and the item's row.
///
/// A split evaluates the users with an item in it. Without validation items, validation uses the test items, as the
/// reference programs do. Training items are left out of a ranking, and those of the validation out of that of the
/// test: a held-out item among them counts as missed. All other items are candidates, trained or not.
class RankingTask : public SampleTask {
 public:
  const KgData& data() const { return data_; }
  /// Rows of all items from the current weights, on the device of the parameters. shapes (data().items, width())
  virtual OwnedTensor item_rows() = 0;
  /// Rows of users 0 .. data().users - 1, after item_rows(), in the tape's arena. Several threads call this at a time.
  /// shapes (users.size(), width())
  Tensor rows_of(Tape& tape, std::span<const std::int64_t> users) const;

  /// Number of interactions (training) or users (validation, test).
  std::int64_t size(Split split) const override;
  bool evaluates(Split split) const override { return split != Split::train; }
  bool validates_on_test() const override { return data_.valid.count() == 0 && data_.test.count() > 0; }
  std::int64_t sum_count() const override { return ranking_.sum_count(); }
  void begin_evaluation() override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  void evaluate_each(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split, const std::vector<double>& sums) const override { return ranking_.metrics(sums); }
  std::string protocol(Split split) const override;
  /// The number of items that occur in no training interaction.
  std::int64_t untrained_items() const;
  /// The most popular items: by training interactions, ties to the smaller number.
  std::vector<Baseline> baselines() const override;
  /// recall@K and ndcg@K, the smallest K first.
  std::vector<std::string> compared_metrics() const override { return ranking_.compared(); }
  std::uint64_t data_hash() const override { return data_.hash; }
  bool tied_to_data() const override { return true; }

 protected:
  RankingTask(KgData data, std::vector<std::int64_t> cutoffs);
  /// Columns of the rows.
  virtual std::int64_t width() const = 0;
  /// The number of user 0's row in the table that user_rows() reads.
  virtual std::int64_t first_user() const = 0;
  /// Copies rows of that table, after item_rows(). The kernels can read the list. Several threads call this at a time.
  virtual void user_rows(Stream& stream, std::span<const std::int32_t> list, const Tensor& rows) const = 0;

 private:
  /// The items that a user's ranking leaves out, ascending. In the arena, or a part of the data.
  std::span<const std::int32_t> left_out(Arena& arena, Split split, std::int64_t user) const;
  /// Adds the sums of user i to sums[i * stride].
  void rank(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums, std::int64_t stride) const;
  /// The users of samples [first, first + count) of a split.
  std::span<const std::int32_t> users(Split split, std::int64_t first, std::int64_t count) const {
    return std::span(evaluated_[static_cast<std::size_t>(split)]).subspan(first, count);
  }
  KgData data_;
  RankingMetrics ranking_;
  std::array<const UserItems*, 3> relevant_;            ///< by split
  std::array<std::vector<std::int32_t>, 3> evaluated_;  ///< users, by split
  ops::ItemTable items_;                                ///< of the evaluation in progress
};

}  // namespace lockstep
