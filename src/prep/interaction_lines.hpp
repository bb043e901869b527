#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::prep {

/// How the fields of a line are kept apart. Blanks: one or more spaces or tabs, also at the ends. Comma: fields may be
/// quoted, `"a, b"`, with quotes doubled inside.
enum class LineKind : std::uint8_t { double_colon, tab, comma, blanks };
/// The fields of a line into `fields`, whose strings are reused. False: a quoted field does not end.
bool split_line(std::string_view line, LineKind kind, std::vector<std::string>& fields);

enum class TimeFault : std::uint8_t { none, no_number, fraction, too_large };
/// A whole number, also written 1.5e9 or 978300760.0.
TimeFault read_time(std::string_view text, std::int64_t& value);
/// A finite decimal number.
bool is_number(std::string_view text);
/// Well-formed UTF-8 without control characters. source  Unicode 15, table 3-7
bool is_clean_utf8(std::string_view text);

}  // namespace lockstep::prep
