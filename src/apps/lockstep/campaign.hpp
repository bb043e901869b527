#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/import.hpp"
#include "apps/lockstep/nested_runs.hpp"
#include "lockstep/data/data_memory.hpp"

namespace lockstep::apps {

/// A training of a campaign: a run of its own in a folder of the campaign's run directory.
struct Training {
  std::string folder;
  std::string title;  ///< for the log
  Changes changes;    ///< keys that differ from the campaign's configuration
  /// Epochs after which it pauses; 0: it runs to its end. Another training of the same folder continues it.
  std::int64_t until_epoch = 0;
  std::string name() const;
};

/// What has become of a training.
struct TrainingEnd {
  int code = 0;      ///< exit code; kExitDone: `text` is Campaign::result
  std::string text;  ///< or the message of the error
};
/// By Training::name().
using TrainingEnds = std::map<std::string, TrainingEnd>;

/// Many trainings with one configuration, up to the changes of each.
struct Campaign {
  std::int64_t ranks_per_run = 1;  ///< 0: all ranks
  /// The trainings that can begin once these have ended, in order, with those that have. Called on rank 0, on any
  /// thread; which rank takes the next one depends on time, so the plan may depend on nothing but the results.
  std::function<std::vector<Training>(const TrainingEnds&)> plan;
  /// What is kept of a finished training. Called on one rank.
  std::function<std::string(const std::filesystem::path& dir, const Training&)> result;
  std::optional<ForeignWeights> first_weights = {};  ///< see training_run()
  /// With the data set of all trainings that change no key of [data]; null: each training loads its own.
  std::shared_ptr<DataMemory> data = nullptr;
  std::string data_hash;  ///< of a search's data set: results of another one are refused; "": not compared
  /// Short trainings, of which some may fail: the console gets a line for each alone, and their files do not wait for
  /// the disk.
  bool many = false;
};

/// Trains a campaign in the open run directory of `config`: each group of ranks takes the next training that no other
/// one has, until none is left. An error ends its training alone. A second start continues unfinished trainings, keeps
/// finished ones, and repeats those that failed, after all others; with `many` once. Collective.
///
/// Returns kExitDone if all trainings of the plan have ended; without `many` the largest exit code of those that failed;
/// or kExitInterrupted: a signal or run.max_hours has stopped it. ends: of rank 0, what has become of the trainings
///
/// errors  Error (usage): the ranks cannot be divided into groups; data: finished trainings were of other data
int train_campaign(World& world, const Options& options, RunConfig& config, const Campaign& campaign,
                   TrainingEnds& ends);

/// Adds the option ranks-per-run.
void add_ranks_per_run(Options& options, std::int64_t* ranks, std::int64_t initial);

}  // namespace lockstep::apps
