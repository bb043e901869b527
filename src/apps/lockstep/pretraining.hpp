#pragma once
#include <memory>

#include "lockstep/base/options.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep::apps {

/// The configuration of a pretraining, and the options that it is bound to.
struct PretrainingConfig {
  RunConfig config;
  Options options{"lockstep train"};
};

/// The configuration of TaskConfig::pretraining(), or null if there is none: the keys of this one where the kind has
/// them, all epochs, in the folder `pretrain` of the run directory, always continued where it was left. Weights and sums
/// are in fp32 where the run's precision has 16 bits.
///
/// errors  Error (usage): run.init names other first weights
std::unique_ptr<PretrainingConfig> make_pretraining(const Options& options, const RunConfig& config);

}  // namespace lockstep::apps
