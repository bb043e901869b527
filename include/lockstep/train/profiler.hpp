#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Steps first to last of a run, counted from 1. A default range is empty.
struct StepRange {
  std::int64_t first = 1, last = 0;
  bool empty() const { return last < first; }
};
/// "100..110", or "" for no step. errors  Error (usage): names `option` and its text
StepRange read_step_range(const std::string& option, const std::string& text);

/// The offset to add to a rank's clock to get the clock of rank 0, with a bound on its error. Units: nanoseconds.
struct ClockOffset {
  std::int64_t offset_ns = 0, error_ns = 0;
};
/// Compares the clocks of these ranks with the clock of rank 0 by round trips of messages. The fastest round trip gives
/// the offset, with an error of at most half of that trip. Collective.
///
/// ranks    the same on all ranks
/// returns  on rank 0 an offset for each of `ranks`
std::vector<ClockOffset> compare_clocks(Communicator& comm, const std::vector<int>& ranks,
                                        const std::function<std::int64_t()>& now_ns);

/// Records the spans of all threads of all ranks, from construction to finish().
class Profiler {
 public:
  /// Collective. dtype  type of the weights, to measure the peak that operations are compared with
  Profiler(World& world, int threads, Device device, DType dtype);
  /// Returns the timeline on rank 0. Collective.
  Timeline finish(StepRange steps);

 private:
  World& world_;
  int threads_;
  Device device_;
  DType dtype_;
  std::vector<Timeline::Rank> ranks_;  ///< on rank 0, like offsets_
  std::vector<ClockOffset> offsets_;
};

/// Writes the timeline to `file` and its tables to the log. Call it on rank 0.
/// errors  Error: the file cannot be written
void report_timeline(const Timeline& timeline, const std::filesystem::path& file);

}  // namespace lockstep
