#pragma once
#include <string>

#include "lockstep/base/text.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

/// The samples of a step on interactions, which computes its micro-batches at once.
inline std::int64_t interactions_per_step(const RunConfig& config, int ranks) {
  return config.batch.accumulate * config.global_batch(ranks);
}

/// "64 over 2 ranks (32 each) of interactions, 2 micro-batches of 32 at once".
inline std::string interactions_text(const RunConfig& config, int ranks) {
  const std::int64_t micro = config.global_batch(ranks), k = config.batch.accumulate;
  return config.batch_text(k * micro, ranks) + " of interactions" +
         (k > 1 ? join(", ", k, " micro-batches of ", micro, " at once") : "");
}

}  // namespace lockstep
