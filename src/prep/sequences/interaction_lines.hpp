#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::prep {

/// Separators of fields. Blanks: one or more spaces or tabs, also at both ends of the line. Comma: fields may be
/// quoted, `"a, b"`, with doubled quotes inside.
enum class LineKind : std::uint8_t { double_colon, tab, comma, blanks };
/// Splits a line into `fields`, whose strings are reused. False when a quoted field does not end.
bool split_line(std::string_view line, LineKind kind, std::vector<std::string>& fields);

enum class TimeFault : std::uint8_t { none, no_number, fraction, too_large };
/// Parses an integer, which may be written as 1.5e9 or 978300760.0.
TimeFault read_time(std::string_view text, std::int64_t& value);
/// Whether a text is a finite decimal number.
bool is_number(std::string_view text);

}  // namespace lockstep::prep
