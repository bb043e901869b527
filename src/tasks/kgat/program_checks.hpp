#pragma once
#include <string>

#include "lockstep/comm/world.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

/// errors  Error (usage) naming the options that a program with LazyAdam does not support
void require_supported(const RunConfig& config, const char* kind);

/// The samples of a step on interactions, which computes its micro-batches at once.
std::int64_t interactions_per_step(const RunConfig& config, int ranks);
/// "64 over 2 ranks (32 each) of interactions, 2 micro-batches of 32 at once".
std::string interactions_text(const RunConfig& config, int ranks);

/// errors  Error (usage) on all ranks, which hold the same numbers, when the mean loss or the norm of its gradient is
///         not finite: names the step and `phase`
void require_finite(World& world, const RunConfig& config, std::int64_t step, std::int64_t epoch, const char* phase,
                    double loss, double norm);

}  // namespace lockstep
