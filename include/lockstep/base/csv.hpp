#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Splits a line of comma-separated values into `fields`, whose strings are reused. Fields may be quoted, `"a, b"`,
/// with doubled quotes inside. False when a quoted field does not end, or is followed by other text than a comma.
bool split_csv(std::string_view line, std::vector<std::string>& fields);
/// What is wrong with a line that split_csv() refuses.
inline constexpr const char* kCsvDefect = "a quoted field without its end, or with text behind it";

}  // namespace lockstep
