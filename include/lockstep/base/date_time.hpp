#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Seconds since 1970-01-01 00:00 UTC.
struct Moment {
  std::int64_t seconds = 0;
  double fraction = 0;  ///< of a second, 0 <= fraction < 1
};
/// Parses an ISO 8601 date with an optional time and zone: `2016-02-05`, `2016-02-05 12`,
/// `2016-02-05 12:30`, `2016-02-05T12:30:15.25+01:00`. Without a zone the time is UTC. Returns nullopt for any other
/// text.
std::optional<Moment> parse_date_time(std::string_view text);
/// `2016-02-05 12:30:15` of the seconds >= 0 since 1970-01-01 00:00.
std::string date_time_text(std::int64_t seconds);

/// The largest time of an interaction; 0 is the smallest. Differences and scaled times then stay within 64 bits. Units:
/// seconds.
inline constexpr std::int64_t kLargestTime = std::int64_t{1} << 62;

}  // namespace lockstep
