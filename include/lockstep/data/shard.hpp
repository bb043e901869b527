#pragma once
#include <cstdint>

namespace lockstep {

struct DrawnShard;

/// Sums over the samples of a shard whose samples differ in rows (ShardModel::count_rows()).
struct RowCounts {
  std::int64_t rows = 0, targets = 0;
  std::int64_t pairs = 0;  ///< pairs of a row with itself or an earlier one of its sample
};

/// A shard of one step's global batch: a range of positions in the epoch's order, and the keys of its random draws.
struct Shard {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;                       ///< global step, from 0
  std::int64_t first = 0;                      ///< position of the first sample in the epoch
  std::int64_t count = 0;                      ///< samples; may be 0
  std::int64_t token_capacity = 0;             ///< rows of the arrays that draw() fills, see ShardModel::count_rows()
  RowCounts counts = {};                       ///< result of ShardModel::count_rows(); 0: draw() counts
  const DrawnShard* drawn = nullptr;           ///< result of ShardModel::draw() for this shard; null: loss() draws
  const std::uint64_t* step_on_gpu = nullptr;  ///< `step` in GPU memory, for kernels that a graph repeats; may be null
};

/// Parts begin .. end-1 of the n contiguous parts of a shard, whose sizes differ by at most one sample.
inline Shard parts_of(const Shard& shard, std::int64_t begin, std::int64_t end, std::int64_t n) {
  Shard parts = shard;
  parts.first = shard.first + shard.count * begin / n;
  parts.count = shard.first + shard.count * end / n - parts.first;
  return parts;
}
inline Shard part_of(const Shard& shard, std::int64_t i, std::int64_t n) { return parts_of(shard, i, i + 1, n); }

}  // namespace lockstep
