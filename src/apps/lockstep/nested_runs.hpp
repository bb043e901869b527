#pragma once
#include <memory>

#include "lockstep/base/options.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep::apps {

/// The configuration of a run inside a run directory, and the options that it is bound to. It always continues where it
/// was left.
struct NestedRun {
  RunConfig config;
  Options options{"lockstep train"};
};

/// The configuration of TaskConfig::pretraining(), or null if there is none: the keys of this one where the kind has
/// them, all epochs, in the folder `pretrain` of the run directory. Weights and sums are in fp32 where the run's
/// precision has 16 bits.
///
/// errors  Error (usage): run.init names other first weights
std::unique_ptr<NestedRun> make_pretraining(const Options& options, const RunConfig& config);

/// The members of the ensemble that a run trains: ensemble.members, or 1 for a kind without this key.
std::int64_t member_count(const Options& options);
/// The configuration with another number of members.
std::unique_ptr<NestedRun> make_ensemble_of(const Options& options, const RunConfig& config, std::int64_t members);
/// The configuration of member `number` (from 1) of an ensemble, an ordinary run: that of the ensemble with run.seed +
/// number - 1, in the folder member_folder(number) of the run directory.
std::unique_ptr<NestedRun> make_member(const Options& options, const RunConfig& config, std::int64_t number);

/// The configuration of the run of a fold, from 1: this one with data.fold, in the folder fold_folder(fold).
std::unique_ptr<NestedRun> make_fold(const Options& options, const RunConfig& config, std::int64_t fold);

}  // namespace lockstep::apps
