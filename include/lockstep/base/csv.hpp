#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Reads the next line of a text file, without the "\r" of Windows and, in the first line, without a UTF-8 byte order
/// mark. `number` counts the lines, from 0 before the first one. Returns false at the end of the file.
bool next_line(std::istream& in, std::string& line, std::int64_t& number);
/// Splits a line of comma-separated values into `fields`, whose strings are reused. Fields may be quoted, `"a, b"`,
/// with doubled quotes inside. Returns false if a quoted field is not closed, or if text follows its closing quote.
bool split_csv(std::string_view line, std::vector<std::string>& fields);
/// The error text for a line on which split_csv() returns false.
inline constexpr const char* kCsvDefect = "a quoted field is not closed, or text follows its closing quote";

}  // namespace lockstep
