#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/step/shard_model.hpp"

namespace lockstep {

/// Divides the samples of a step into contiguous parts: with about equal numbers of rows if the samples differ in rows
/// (ShardModel::count_rows()), so that no rank or thread waits long for the others; otherwise with equal numbers of
/// samples.
class RowParts {
 public:
  /// Counts the rows of `all`, the samples of a step. The shards of part_of() lie in it.
  void count(const ShardModel& model, const Shard& all) {
    first_ = all.first;
    up_to_.resize(static_cast<std::size_t>(all.count) + 1);  // the first stays 0
    by_rows_ = model.count_rows(all, std::span(up_to_).subspan(1)).rows > 0;
    if (by_rows_) std::inclusive_scan(up_to_.begin(), up_to_.end(), up_to_.begin());
  }
  /// Whether the samples differ in rows.
  bool vary() const { return by_rows_; }
  /// Part i of n.
  Shard part_of(const Shard& shard, std::int64_t i, std::int64_t n) const {
    if (!by_rows_) return lockstep::part_of(shard, i, n);
    Shard part = shard;
    part.first = shard.first + samples_before(shard, i, n);
    part.count = shard.first + samples_before(shard, i + 1, n) - part.first;
    return part;
  }

 private:
  /// The cut that is nearest to i / n of the rows.
  std::int64_t samples_before(const Shard& shard, std::int64_t i, std::int64_t n) const {
    if (i == 0 || i == n) return i == 0 ? 0 : shard.count;
    const auto begin = up_to_.begin() + (shard.first - first_), last = begin + shard.count;
    const std::int64_t wanted = *begin + (*last - *begin) * i / n;
    auto cut = std::lower_bound(begin, last, wanted);
    if (cut != begin && wanted - cut[-1] < *cut - wanted) --cut;
    return cut - begin;
  }

  std::int64_t first_ = 0;
  bool by_rows_ = false;
  std::vector<std::int64_t> up_to_;  ///< rows of the samples before each one, and of all
};

}  // namespace lockstep
