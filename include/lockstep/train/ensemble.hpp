#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"

namespace lockstep {

class H5File;

/// The configuration key of a task that trains ensembles: its number of networks.
inline constexpr const char* kMembersKey = "ensemble.members";

/// A task whose networks can make an ensemble. Its configuration has kMembersKey.
class EnsembleTask {
 public:
  virtual ~EnsembleTask() = default;
  /// Makes Task::evaluate() score an ensemble of `count` networks of this architecture. Returns their parameters, the
  /// task's own first; the caller loads the weights.
  virtual std::vector<ParamStore*> make_ensemble(std::int64_t count) = 0;
  /// errors  Error (data): the network of a checkpoint has another architecture than this task's
  virtual void require_member(const H5File& checkpoint) const = 0;
};

/// The number of members that config.ini of a run directory names, 0 without one. The directory may have more folders, of
/// an earlier and larger ensemble.
std::int64_t member_count_in(const std::filesystem::path& run_dir);
/// The files of `--checkpoint TEXT`: those of a comma-separated list; for the run directory of an ensemble the best (else
/// the final) checkpoints of the members that its config.ini names; else TEXT itself.
/// errors  Error (usage): a directory without an ensemble; (data): a member without checkpoint
std::vector<std::string> checkpoint_files(const std::string& text);

}  // namespace lockstep
