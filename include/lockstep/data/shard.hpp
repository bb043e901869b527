#pragma once
#include <cstdint>

namespace lockstep {

/// A shard of one step's global batch: a range of positions in the epoch's order, and the keys of its random draws.
struct Shard {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;   ///< global step, from 0
  std::int64_t first = 0;  ///< position of the first sample in the epoch
  std::int64_t count = 0;  ///< samples; may be 0
};

}  // namespace lockstep
