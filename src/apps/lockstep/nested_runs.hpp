#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/report/run_records.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep::apps {

/// Keys with other values.
using Changes = std::vector<std::pair<std::string, std::string>>;

/// The configuration of a run inside a run directory, and the options that it is bound to. It always resumes.
struct NestedRun {
  RunConfig config;
  Options options{"lockstep train"};
};

/// The configuration of TaskConfig::pretraining(), or null if there is none: the keys of `config` that the kind also
/// has, all epochs, in the folder `pretrain` of the run directory. Its precision is fp32 if that of `config` has 16
/// bits.
///
/// errors  Error (usage): run.init names other initial weights
std::unique_ptr<NestedRun> make_pretraining(const Options& options, const RunConfig& config);

/// The members of the ensemble that a run trains: ensemble.members, or 1 for a kind without this key.
std::int64_t member_count(const Options& options);
/// The configuration with these changes, in `folder` of the run directory.
std::unique_ptr<NestedRun> make_training(const Options& options, const RunConfig& config, const Changes& changes,
                                         const std::string& folder);

/// Whether a run has evaluated its test samples, or written its final checkpoint, after its last record, or is a
/// finished trial of a search, which does neither.
bool has_finished(const std::filesystem::path& dir, const RunRecords& records);

}  // namespace lockstep::apps
