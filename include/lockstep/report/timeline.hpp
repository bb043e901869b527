#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/profile.hpp"
#include "lockstep/report/run_log.hpp"

namespace lockstep {

/// The spans of all ranks in a range of steps, for the files and the report of `--profile`.
struct Timeline {
  static constexpr std::size_t kKinds = 4;
  struct Span {
    std::uint32_t name = 0, detail = 0;  ///< indices into `words`; 0 is the empty word
    profile::Kind kind = profile::Kind::phase;
    std::uint32_t number = 0;
    float flops = 0;
    std::int64_t begin_ns = 0, end_ns = 0;  ///< by the clock of rank 0
    std::int64_t self_ns = 0;               ///< duration without the spans inside
    std::int64_t waited_ns = 0;             ///< collectives only: time until the last rank arrived
    int depth = 0;                          ///< number of spans around it
  };
  struct Lane {
    int rank = 0, number = 0;
    std::string name;
    std::vector<Span> spans;  ///< by begin; an outer span before those inside
  };
  struct Rank {
    std::string host;
    double clock_error_s = 0;  ///< bound on the error of its corrected clock against the clock of rank 0
  };
  std::int64_t first = 0, last = 0;  ///< steps, counted from 1
  std::vector<std::string> words = {""};
  std::vector<Rank> ranks;
  std::vector<Lane> lanes;      ///< by rank and number
  double flops_per_thread = 0;  ///< peak of the processor; 0: unknown
  std::uint64_t lost = 0;       ///< spans that did not fit in memory

  /// Sorts the spans of each lane and fills self_ns, waited_ns and depth.
  void arrange();
  /// The text shown for a span: its detail if it has one (such as the data of a collective), otherwise its name.
  const std::string& label(const Span& span) const { return words[span.detail != 0 ? span.detail : span.name]; }
};

/// The timeline in the Trace Event Format of Chrome, which Perfetto opens. A process is a rank, a thread one of its
/// lanes. Times are microseconds since the first span.
std::string chrome_trace(const Timeline& timeline);
/// The operations that took most time in all threads, without the spans inside them.
ReportTable slowest_operations(const Timeline& timeline, std::size_t most = 10);
/// Per rank: recorded time, time in collectives, time spent waiting for others there, and time that others waited for
/// it.
ReportTable rank_times(const Timeline& timeline);
/// One sentence: the rank that the others waited for most, and for which data it waited. "" for a single rank.
std::string slowest_rank(const Timeline& timeline);
/// A table as lines of aligned columns, without its title.
std::string table_text(const ReportTable& table);
/// The step of median length as a picture, one lane per thread. Empty if no complete step was recorded.
ReportPicture timeline_picture(const Timeline& timeline);

}  // namespace lockstep
