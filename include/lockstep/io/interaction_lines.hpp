#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/date_time.hpp"
#include "lockstep/base/named.hpp"

namespace lockstep {

/// What separates fields. Blanks: one or more spaces or tabs, also at both ends of the line. Comma, semicolon and bar:
/// as split_csv().
enum class Separator : std::uint8_t { double_colon, tab, comma, semicolon, bar, blanks };
constexpr auto names_of(Separator) { return std::array{"'::'", "tabs", "commas", "semicolons", "bars", "blanks"}; }
/// The separator of a line: tabs before `::` before the most frequent of comma, semicolon and bar before blanks.
Separator separator_of(std::string_view line);
/// Splits a line into `fields`, whose strings are reused. Returns false as split_csv() does.
bool split_line(std::string_view line, Separator separator, std::vector<std::string>& fields);

/// What a time that is a number counts since 1970, or that its digits are those of a date and a time.
struct TimeUnit {
  const char* name = "s";
  std::int64_t per_second = 1, seconds = 1;
  bool digits = false;  ///< yyyymmdd, yyyymmddhh, yyyymmddhhmm or yyyymmddhhmmss
};
inline constexpr TimeUnit kTimeUnits[] = {{"s", 1, 1},          {"ms", 1'000, 1},
                                          {"us", 1'000'000, 1}, {"ns", 1'000'000'000, 1},
                                          {"day", 1, 86400},    {"yyyymmdd", 1, 1, true}};
/// The unit of a name in kTimeUnits.
const TimeUnit& time_unit(std::string_view name);

enum class TimeFault : std::uint8_t { none, no_time, too_large };
/// Parses a number (1454675400, 1.5e9, 978300760.25) of a unit, or a date as parse_date_time() reads it.
TimeFault read_time(std::string_view text, Moment& value, const TimeUnit& unit = {});
/// Whether a text is a finite decimal number.
bool is_number(std::string_view text, double* value = nullptr);

}  // namespace lockstep
