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

/// The reason for a report.
struct Alarm {
  enum class Kind : std::int32_t { late, dead } kind;
  std::int32_t rank;  ///< late: the rank that waited too long; dead: the rank that died
  double timeout_s;
};

/// The report that names late, stopped and dead ranks: one message with the event, the ranks at fault and a table of
/// all ranks.
///
/// At fault are, in this order: ranks that died, ranks stopped by a signal, ranks that do not answer, ranks that have
/// not reached the collective in which the others wait, ranks in another collective. If all ranks are in the same
/// collective, the message says so.
std::string report_text(const Alarm& alarm, const std::vector<RankSeen>& ranks);

}  // namespace lockstep
