#pragma once
#include <algorithm>

#include "lockstep/step/sharded_step.hpp"

namespace lockstep {

inline std::int64_t micro_batches(const GlobalBatch& batch) {
  return batch.micro > 0 ? std::max<std::int64_t>(1, (batch.count + batch.micro - 1) / batch.micro) : 1;
}

/// The samples of micro-batch m over all ranks.
inline Shard micro_batch(const GlobalBatch& batch, std::int64_t m) {
  const std::int64_t first = batch.first + m * batch.micro, left = batch.first + batch.count - first;
  return {.seed = batch.seed,
          .epoch = batch.epoch,
          .step = batch.step,
          .first = first,
          .count = batch.micro > 0 ? std::min(batch.micro, left) : left};
}

}  // namespace lockstep
