#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/profile.hpp"
#include "lockstep/report/run_log.hpp"

namespace lockstep {

/// What all ranks did in a range of steps, for the files and the report of `--profile`.
struct Timeline {
  static constexpr std::size_t kKinds = 4;
  struct Span {
    std::uint32_t name = 0, detail = 0;  ///< in `words`; 0 is the empty word
    profile::Kind kind = profile::Kind::phase;
    std::uint32_t number = 0;
    float flops = 0;
    std::int64_t begin_ns = 0, end_ns = 0;  ///< by the clock of rank 0
    std::int64_t self_ns = 0;               ///< without the spans inside
    std::int64_t waited_ns = 0;             ///< of a collective: until its last rank arrived
    int depth = 0;                          ///< number of spans around it
  };
  struct Lane {
    int rank = 0, number = 0;
    std::string name;
    std::vector<Span> spans;  ///< by begin; an outer span before those inside
  };
  struct Rank {
    std::string host;
    double clock_error_s = 0;  ///< bound on the difference between its clock, as corrected, and that of rank 0
  };
  std::int64_t first = 0, last = 0;  ///< steps, counted from 1
  std::vector<std::string> words = {""};
  std::vector<Rank> ranks;
  std::vector<Lane> lanes;      ///< by rank and number
  double flops_per_thread = 0;  ///< peak of the processor; 0: unknown
  std::uint64_t lost = 0;       ///< spans for which there was no room

  /// Sorts the spans of each lane and fills self_ns, waited_ns and depth.
  void arrange();
  /// What a reader sees of a span: its detail if it has one, as the data of a collective, or its name.
  const std::string& label(const Span& span) const { return words[span.detail != 0 ? span.detail : span.name]; }
};

/// The timeline in the Trace Event Format of Chrome, which Perfetto opens. A process is a rank, a thread one of its lanes.
/// Times are microseconds since the first span.
std::string chrome_trace(const Timeline& timeline);
/// The operations that took most time in all threads, without the spans inside them.
ReportTable slowest_operations(const Timeline& timeline, std::size_t most = 10);
/// Time of each rank in computation and in collectives, and how long it waited for others there.
ReportTable rank_times(const Timeline& timeline);
/// One sentence: the rank that the others waited for most, and what it waited for itself. "" for a single rank.
std::string slowest_rank(const Timeline& timeline);
/// A table in lines of aligned columns, without its title.
std::string table_text(const ReportTable& table);
/// The step of median length as a picture, one lane per thread. Empty if no step was recorded whole.
ReportPicture timeline_picture(const Timeline& timeline);

}  // namespace lockstep
