#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// `1536` -> "1.5 KiB". Units: bytes.
std::string human_bytes(double bytes);
/// `93.5` -> "1m34s", `0.0021` -> "2.1ms". Units: seconds.
std::string human_seconds(double seconds);
/// The shortest decimal text that reads back as the same number.
std::string exact(double value);
/// Without blanks, tabs and line ends at both sides.
std::string trim(std::string_view text);
/// The fields between separators, empty ones kept; an empty text has no fields.
std::vector<std::string> split(std::string_view text, char separator);
/// The candidate with the smallest edit distance (Levenshtein) to `word`, or "" when none is close enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
