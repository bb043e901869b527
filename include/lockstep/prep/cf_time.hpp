#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/named.hpp"

namespace lockstep::prep {

/// The calendars of the CF conventions. `standard` is Gregorian from 1582-10-15 on and Julian before.
enum class Calendar : std::uint8_t { standard, proleptic, julian, noleap, all_leap, days_360 };
/// Those of the conventions.
constexpr auto names_of(Calendar) {
  return std::array{"standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"};
}

/// Any spelling of the conventions; "" is the standard calendar. nullopt for other texts, such as `none`.
/// source  CF conventions 1.11, section 4.4.1
std::optional<Calendar> parse_calendar(std::string_view name);

/// Whether seconds since 1970 of both mean the same: those of the standard and the proleptic calendar do.
bool comparable(Calendar a, Calendar b);

/// Days since 1970-01-01 of the same calendar; nullopt if the calendar has no such day.
std::optional<std::int64_t> day_number(Calendar calendar, int year, int month, int day);
/// `2016-02-05 12:30`, with `:15` for seconds that are not 0. seconds  since 1970-01-01 00:00 of the same calendar
std::string date_text(std::int64_t seconds, Calendar calendar = Calendar::standard);

/// A unit of time such as `days since 2016-02-01 12:00:00 +01:00`. Months and years are those of the calendar: a value
/// of 1.5 months is half of the second month, as CDO counts.
class TimeUnit {
 public:
  /// Units from microseconds to years; nullopt for any other text, and for a date that the calendar lacks.
  static std::optional<TimeUnit> parse(std::string_view units, Calendar calendar);
  /// Seconds since 1970-01-01 00:00 UTC of the calendar; nullopt for NaN and what is beyond 3e7 years.
  std::optional<std::int64_t> seconds(double value) const;
  bool in_months() const { return months_ > 0; }

 private:
  Calendar calendar_ = Calendar::standard;
  double seconds_ = 0;  ///< per unit, or
  int months_ = 0;      ///< per unit
  int year_ = 1970, month_ = 1, day_ = 1;
  double time_of_day_s_ = 0;  ///< of the origin, UTC
};

}  // namespace lockstep::prep
