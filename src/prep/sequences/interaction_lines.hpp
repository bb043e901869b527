#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prep/date_time.hpp"

namespace lockstep::prep {

/// Separators of fields. Blanks: one or more spaces or tabs, also at both ends of the line. Comma: as
/// split_csv().
enum class LineKind : std::uint8_t { double_colon, tab, comma, blanks };
/// Splits a line into `fields`, whose strings are reused. Returns false as split_csv() does.
bool split_line(std::string_view line, LineKind kind, std::vector<std::string>& fields);

enum class TimeFault : std::uint8_t { none, no_time, too_large };
/// Parses a number of seconds (1454675400, 1.5e9, 978300760.25) or a date as parse_date_time() reads it.
TimeFault read_time(std::string_view text, Moment& value);
/// Whether a text is a finite decimal number.
bool is_number(std::string_view text);

}  // namespace lockstep::prep
