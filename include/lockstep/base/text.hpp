#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// `1536` -> "1.5 KiB". Units: bytes.
std::string human_bytes(double bytes);
/// `93.5` -> "1m34s", `0.0021` -> "2.1ms". Units: seconds.
std::string human_seconds(double seconds);
/// Formats like std::printf.
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);
/// The shortest decimal text that reads back as the same value.
std::string exact(double value);
/// Removes blanks, tabs and line ends from both ends.
std::string trim(std::string_view text);
/// Splits at every separator and keeps empty fields. An empty text has no fields.
std::vector<std::string> split(std::string_view text, char separator);
/// "a, b, c".
std::string listed(const std::vector<std::string>& words);
std::string listed(const std::vector<std::string>& words, std::string_view separator);
/// Lists text(part) for each part of a range.
template <class Range, class Text>
std::string listed(const Range& parts, std::string_view separator, const Text& text) {
  std::vector<std::string> words;
  for (const auto& part : parts) words.push_back(text(part));
  return listed(words, separator);
}
/// "(2, 3)".
std::string shape_text(const std::vector<std::int64_t>& shape);
/// Whether a text is well-formed UTF-8 without control characters. source  Unicode 15, table 3-7
bool is_clean_utf8(std::string_view text);
/// The text with "\x1b" for each byte that is a control character or not UTF-8. Tabs and line breaks are kept.
std::string printable(std::string_view text);
/// Wraps `text` to `columns` and indents every line after the first by `indent`. Line breaks in `text` are kept.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns);
/// Rows as lines of aligned columns, indented by two. The columns after the first are aligned at this side.
enum class Align : std::uint8_t { left, right };
std::string aligned(const std::vector<std::vector<std::string>>& rows, Align rest = Align::left);
/// The line length of prose in generated Markdown pages.
inline constexpr std::size_t kMarkdownColumns = 120;
/// The candidate with the smallest edit distance (Levenshtein) to `word`, or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
