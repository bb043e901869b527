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

/// A task whose networks can form an ensemble. Its configuration has kMembersKey.
class EnsembleTask {
 public:
  virtual ~EnsembleTask() = default;
  /// Makes Task::evaluate() score an ensemble of `count` networks of this architecture. Returns their parameters, the
  /// task's own first; the caller loads the weights.
  virtual std::vector<ParamStore*> make_ensemble(std::int64_t count) = 0;
  /// errors  Error (data): the network of a checkpoint has another architecture than this task's
  virtual void require_member(const H5File& checkpoint) const = 0;
};

/// The number of members in config.ini of a run directory; 0 without one. The directory may contain further member
/// folders of an earlier, larger ensemble.
std::int64_t member_count_in(const std::filesystem::path& run_dir);
/// The files of `--checkpoint TEXT`. TEXT is a comma-separated list, a file, or the run directory of an ensemble: then
/// the best (else the final) checkpoints of the members that its config.ini names.
/// errors  Error (usage): a directory without an ensemble; (data): a member that has not finished its training
std::vector<std::string> checkpoint_files(const std::string& text);

}  // namespace lockstep
