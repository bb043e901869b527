#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "status.hpp"

namespace lockstep {

/// The state of a rank at the time of the report. Travels between nodes as bytes.
struct RankSeen {
  Identity identity;
  Whereabouts at;
  double age_s;  ///< time in that activity
  Process process;
  bool answered;  ///< false: the state is unknown, and identity has rank and host only
};

/// What the board of a rank says now.
RankSeen seen_on(const RankBoard& board, Process process);

/// The reason for a report. A slow collective is no reason to end the job.
struct Alarm {
  enum class Kind : std::int32_t { late, dead, slow } kind;
  std::int32_t rank;  ///< late, slow: the rank that waits; dead: the rank that died
  double timeout_s;   ///< slow: how long it has waited
};

/// Whether a rank is known to run and to wait in a collective.
bool waits(const RankSeen& rank);

/// The report that names late, stopped and dead ranks: one message with the event, the ranks at fault and, if the job
/// ends, a table of all ranks.
///
/// At fault are, in this order: ranks that died, ranks stopped by a signal, ranks that do not answer, ranks that have
/// not reached the collective in which the others wait, ranks in another collective. If all ranks are in the same
/// collective, the message says so.
std::string report_text(const Alarm& alarm, const std::vector<RankSeen>& ranks);

}  // namespace lockstep
