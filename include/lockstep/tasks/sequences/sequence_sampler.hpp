#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/named.hpp"
#include "lockstep/data/shard.hpp"
#include "lockstep/models/sequences/sequence_batch.hpp"
#include "lockstep/ops/training_windows.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// The training windows at the shard's positions of its epoch. Each target has `negatives` drawn items, uniform over
/// the items that are not among the user's training items (over all items if the user knows all), drawn by (seed, step,
/// user, slot). The arrays of tokens have Shard::token_capacity rows, if that is set.
SequenceBatch training_batch(Arena& arena, const SequenceData& data, const WindowShape& shape, const Shard& shard,
                             std::int64_t negatives = 1);
/// Counts the tokens of a batch, from nothing but the lengths of histories.
/// tokens_each: receives the tokens of every sample, unless it is empty.
RowCounts count_windows(const SequenceData& data, const WindowShape& shape, const Shard& shard,
                        std::span<std::int64_t> tokens_each = {});

/// Draws `count` candidates of a step in proportion to a power of their numbers of training events, with replacement.
/// An item without events counts as if it had one.
class PopularItems {
 public:
  PopularItems() = default;
  /// training_counts  see SequenceData
  PopularItems(std::span<const std::int64_t> training_counts, double power, std::int64_t count);
  /// The candidates, and the biases -log(count q_j) of their scores, where q_j is the probability of a draw. A function
  /// of (seed, step).
  ///
  /// dtype  f32 | f64, of the biases
  void draw(Arena& arena, std::uint64_t seed, std::int64_t step, DType dtype, SequenceBatch& batch) const;
  std::int64_t count() const { return count_; }
  std::span<const double> up_to() const { return up_to_; }  ///< (I + 1) sums of the weights of items 1..i
  std::span<const double> biases() const { return bias_; }  ///< (I + 1), by item

 private:
  std::int64_t count_ = 0;
  std::vector<double> up_to_, bias_;
};
/// The newest windows of these histories, without targets. The batch's users are 0, 1, ....
SequenceBatch newest_batch(Arena& arena, const WindowShape& shape, std::span<const UserHistory> histories);

/// A user as a training sample.
ops::HistorySample history_sample(const SequenceData& data, std::int64_t user);

/// What happens to a held-out item that the user had before.
enum class Repeats : std::uint8_t {
  drop,    ///< the user is not evaluated
  keep,    ///< it is evaluated, and the items of the history are candidates
  refuse,  ///< an error
};
constexpr auto names_of(Repeats) { return std::array{"drop", "keep", "refuse"}; }

/// The items that a user's held-out item is ranked against: those outside the user's whole history, or with
/// Repeats::keep all others.
struct Rivals {
  const SequenceData& data;
  Repeats repeats = Repeats::drop;

  std::int64_t count(std::int64_t user) const;
  /// Draws rivals, uniformly; a function of (seed, user). Items may repeat, unless count() is less than enough_for() as
  /// many as `out` holds: then all are distinct, and zeros follow when there are no more.
  void draw(std::int64_t user, std::int32_t target, std::uint64_t seed, std::span<std::int32_t> out) const;
  /// The number of rivals from which so many are drawn with replacement: few draws repeat an item.
  static std::int64_t enough_for(std::int64_t draws) { return 10 * draws; }
};

}  // namespace lockstep
