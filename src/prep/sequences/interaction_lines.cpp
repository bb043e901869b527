#include "prep/sequences/interaction_lines.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep::prep {

namespace {
void add(std::vector<std::string>& fields, std::size_t& used, std::string_view text) {
  if (used == fields.size()) fields.emplace_back();
  fields[used++].assign(text);
}

bool split_commas(std::string_view line, std::vector<std::string>& fields, std::size_t& used) {
  for (std::size_t at = 0;;) {
    if (at < line.size() && line[at] == '"') {
      std::string text;
      for (++at;; ++at) {
        if (at >= line.size()) return false;
        if (line[at] != '"') {
          text += line[at];
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          text += line[at++];
        } else {
          break;
        }
      }
      if (++at < line.size() && line[at] != ',') return false;
      add(fields, used, text);
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      add(fields, used, line.substr(at, end - at));
      at = end;
    }
    if (at >= line.size()) return true;
    ++at;
  }
}
}  // namespace

bool split_line(std::string_view line, LineKind kind, std::vector<std::string>& fields) {
  std::size_t used = 0;
  bool good = true;
  if (kind == LineKind::comma) {
    good = split_commas(line, fields, used);
  } else if (kind == LineKind::blanks) {
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
  return good;
}

TimeFault read_time(std::string_view text, std::int64_t& value) {
  const char *begin = text.data(), *end = begin + text.size();
  const auto whole = std::from_chars(begin, end, value);
  if (whole.ptr == end && whole.ec == std::errc{} && !text.empty()) return TimeFault::none;
  double real = 0;
  const auto [after, failed] = std::from_chars(begin, end, real);
  if (after != end || text.empty()) return TimeFault::no_number;
  if (failed == std::errc::result_out_of_range) return TimeFault::too_large;
  if (failed != std::errc{} || !std::isfinite(real)) return TimeFault::no_number;
  if (std::abs(real) >= 0x1p63) return TimeFault::too_large;
  if (real != std::trunc(real)) return TimeFault::fraction;
  value = static_cast<std::int64_t>(real);
  return TimeFault::none;
}

bool is_number(std::string_view text) {
  double real = 0;
  const auto [after, failed] = std::from_chars(text.data(), text.data() + text.size(), real);
  return !text.empty() && failed == std::errc{} && after == text.data() + text.size() && std::isfinite(real);
}

}  // namespace lockstep::prep
