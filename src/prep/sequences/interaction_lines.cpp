#include "prep/sequences/interaction_lines.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lockstep/base/csv.hpp"

namespace lockstep::prep {

namespace {
void add(std::vector<std::string>& fields, std::size_t& used, std::string_view text) {
  if (used == fields.size()) fields.emplace_back();
  fields[used++].assign(text);
}
}  // namespace

bool split_line(std::string_view line, LineKind kind, std::vector<std::string>& fields) {
  if (kind == LineKind::comma) return split_csv(line, fields);
  std::size_t used = 0;
  if (kind == LineKind::blanks) {
    for (std::size_t at = line.find_first_not_of(" \t"); at != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
      add(fields, used, line.substr(at, end - at));
      at = line.find_first_not_of(" \t", end);
    }
  } else {
    const std::string_view mark = kind == LineKind::tab ? "\t" : "::";
    for (std::size_t at = 0;;) {
      const std::size_t end = line.find(mark, at);
      add(fields, used, line.substr(at, end == std::string_view::npos ? end : end - at));
      if (end == std::string_view::npos) break;
      at = end + mark.size();
    }
  }
  fields.resize(used);
  return true;
}

TimeFault read_time(std::string_view text, Moment& value) {
  value = {};
  const char *begin = text.data(), *end = begin + text.size();
  const auto whole = std::from_chars(begin, end, value.seconds);
  if (whole.ptr == end && whole.ec == std::errc{} && !text.empty()) return TimeFault::none;
  double real = 0;
  const auto [after, failed] = std::from_chars(begin, end, real);
  if (after != end || text.empty()) {
    const auto date = parse_date_time(text);
    value = date.value_or(Moment{});
    return date ? TimeFault::none : TimeFault::no_time;
  }
  if (failed == std::errc::result_out_of_range) return TimeFault::too_large;
  if (failed != std::errc{} || !std::isfinite(real)) return TimeFault::no_time;
  if (std::abs(real) >= 0x1p63) return TimeFault::too_large;
  value.seconds = static_cast<std::int64_t>(std::floor(real));
  value.fraction = real - std::floor(real);
  return TimeFault::none;
}

bool is_number(std::string_view text) {
  double real = 0;
  const auto [after, failed] = std::from_chars(text.data(), text.data() + text.size(), real);
  return !text.empty() && failed == std::errc{} && after == text.data() + text.size() && std::isfinite(real);
}

}  // namespace lockstep::prep
