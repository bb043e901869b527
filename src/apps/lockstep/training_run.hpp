#pragma once
#include <memory>
#include <optional>
#include <string>

#include "apps/lockstep/import.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/report/run_log.hpp"

namespace lockstep::apps {

/// Fills in what the arguments leave open: the run directory, absolute paths, the options of the network that follow
/// from run.init, and the text of the configuration. Configures the world, and checks that all ranks run this program.
/// Returns the weights of run.init if another program has written it. Collective.
/// errors  usage: lists the options that neither run.init nor the user determines
std::optional<ForeignWeights> complete(World& world, RunConfig& config, Options& options, const Args& args);

/// open_run_directory() for config.run.dir and run.resume. If this is a later start of a requeued Slurm job, which
/// repeats the command of the first one, config.run.resume becomes auto. Call it on rank 0.
void open_directory(RunConfig& config, const Options& options, TakeOver take_over);

/// All hosts must see the run directory of rank 0, or a requeued job would not find its checkpoints. Collective.
void require_shared_directory(World& world, const RunConfig& config);

/// A whole run in its directory: continues it or starts it, trains, and evaluates the best weights. Returns its exit
/// code. Collective.
///
/// profiled_steps  "A..B" or ""; see --profile
/// first_weights   complete()
/// data            holds the data set, for several trainings; null: the run loads it
/// ranks_per_member  of an ensemble; 0: all ranks train one member after the other
/// errors          Error (usage): a contradictory configuration, or one that does not match the data or the directory
int training_run(World& world, const Options& options, RunConfig& config, TakeOver take_over,
                 const std::string& profiled_steps = "", std::optional<ForeignWeights> first_weights = {},
                 std::shared_ptr<DataMemory> data = nullptr, std::int64_t ranks_per_member = 0);

}  // namespace lockstep::apps
