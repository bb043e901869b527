#pragma once
#include "lockstep/comm/world.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

/// errors  Error (usage) on all ranks, which hold the same numbers, when the mean loss or the norm of its gradient is
///         not finite: names the step and `phase`
void require_finite(World& world, const RunConfig& config, std::int64_t step, std::int64_t epoch, const char* phase,
                    double loss, double norm);

}  // namespace lockstep
