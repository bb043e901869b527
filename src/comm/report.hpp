#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "status.hpp"

namespace lockstep {

/// A rank as it was seen when the report was asked for. Travels between nodes as bytes.
struct RankSeen {
  Identity identity;
  Whereabouts at;
  double age_s;  ///< in that activity
  Process process;
  bool answered;  ///< false: nothing could be learnt, identity holds rank and host only
};

/// Why a watchdog spoke up.
struct Alarm {
  enum class Kind : std::int32_t { late, dead } kind;
  std::int32_t rank;  ///< late: who waited too long; dead: who has died
  double timeout_s;
};

/// One message with one table: what happened, whose fault it is as far as can be known, and where every rank is.
///
/// At fault are, in this order: ranks that died, ranks stopped by a signal, ranks of which nothing can be learnt, ranks
/// that have not come to the collective that the others wait in, ranks that are in another one. When all are in the
/// same one, the message says so.
std::string report_text(const Alarm& alarm, const std::vector<RankSeen>& ranks);

}  // namespace lockstep
