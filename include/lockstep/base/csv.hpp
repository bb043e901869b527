#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Opens a text file or a pipe. errors  Error (usage): it is missing, unreadable or a directory
std::ifstream open_text(const std::string& path);
/// Reads the next line of the text file `path`, without the "\r" of Windows and, in the first line, without a UTF-8
/// byte order mark. `number` counts the lines, from 0 before the first one. Returns false at the end of the file.
/// errors  as clean_first_line()
bool next_line(std::istream& in, std::string& line, std::int64_t& number, const std::string& path);
/// Removes the UTF-8 byte order mark from the first line of the text file `path`.
/// errors  Error (data): the line begins a compressed file or UTF-16 text, or carriage returns alone end the lines of
///         the file
void clean_first_line(std::string& line, const std::string& path);
/// Splits a line of comma-separated values into `fields`, whose strings are reused. Fields may be quoted, `"a, b"`,
/// with doubled quotes inside and blanks around. Returns false if a quoted field is not closed, or if text follows its
/// closing quote.
bool split_csv(std::string_view line, std::vector<std::string>& fields, char separator = ',');
/// The error text for a line on which split_csv() returns false.
inline constexpr const char* kCsvDefect = "a quoted field is not closed, or text follows its closing quote";

}  // namespace lockstep
