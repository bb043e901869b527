#include "lockstep/io/interaction_lines.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/number.hpp"

namespace lockstep {

namespace {
void add(std::vector<std::string>& fields, std::size_t& used, std::string_view text) {
  if (used == fields.size()) fields.emplace_back();
  fields[used++].assign(text);
}

/// `20140523`, `20140523121530` as an ISO date; "" for other texts.
std::string iso_of_digits(std::string_view digits) {
  constexpr std::string_view kForm = "yyyy-mm-ddThh:mm:ss";
  std::string iso;
  for (const char c : digits) {
    if (c < '0' || c > '9' || iso.size() == kForm.size()) return "";
    if (kForm[iso.size()] < 'a') iso += kForm[iso.size()];
    iso += c;
  }
  return iso;
}
}  // namespace

Separator separator_of(std::string_view line) {
  if (line.find('\t') != std::string_view::npos) return Separator::tab;
  if (line.find("::") != std::string_view::npos) return Separator::double_colon;
  const auto commas = std::ranges::count(line, ','), semicolons = std::ranges::count(line, ';'),
             bars = std::ranges::count(line, '|');
  if (semicolons > std::max(commas, bars)) return Separator::semicolon;
  if (bars > commas) return Separator::bar;
  return commas > 0 ? Separator::comma : Separator::blanks;
}

bool split_line(std::string_view line, Separator separator, std::vector<std::string>& fields) {
  if (separator == Separator::comma) return split_csv(line, fields);
  if (separator == Separator::semicolon) return split_csv(line, fields, ';');
  if (separator == Separator::bar) return split_csv(line, fields, '|');
  std::size_t used = 0;
  if (separator == Separator::blanks) {
    for (std::size_t at = line.find_first_not_of(" \t"); at != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
      add(fields, used, line.substr(at, end - at));
      at = line.find_first_not_of(" \t", end);
    }
  } else {
    const std::string_view mark = separator == Separator::tab ? "\t" : "::";
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

const TimeUnit& time_unit(std::string_view name) { return *std::ranges::find(kTimeUnits, name, &TimeUnit::name); }

TimeFault read_time(std::string_view text, Moment& value, const TimeUnit& unit) {
  value = {};
  const std::string iso = unit.digits ? iso_of_digits(text) : "";
  if (const auto date = parse_date_time(iso.empty() ? text : iso)) {
    value = *date;
    return TimeFault::none;
  }
  std::int64_t count = 0;
  double real = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto whole = std::from_chars(begin, end, count);
  if (text.empty() || unit.digits) return TimeFault::no_time;
  if (whole.ptr == end && whole.ec == std::errc{}) {
    const std::int64_t rest = (count % unit.per_second + unit.per_second) % unit.per_second,
                       below = count / unit.per_second - (count % unit.per_second < 0);
    value.fraction = static_cast<double>(rest) / static_cast<double>(unit.per_second);
    const bool fits = !__builtin_mul_overflow(below, unit.seconds, &value.seconds);
    return fits ? TimeFault::none : TimeFault::too_large;
  }
  const auto [after, failed] = std::from_chars(begin, end, real);
  if (after != end) return TimeFault::no_time;
  if (failed == std::errc::result_out_of_range) return TimeFault::too_large;
  if (failed != std::errc{} || !std::isfinite(real)) return TimeFault::no_time;
  real = real * static_cast<double>(unit.seconds) / static_cast<double>(unit.per_second);
  if (std::abs(real) >= 0x1p63) return TimeFault::too_large;
  value.seconds = static_cast<std::int64_t>(std::floor(real));
  value.fraction = real - std::floor(real);
  return TimeFault::none;
}

bool is_number(std::string_view text, double* value) {
  const auto real = number_in<double>(text);
  if (value != nullptr) *value = real.value_or(0);
  return real && std::isfinite(*real);
}

}  // namespace lockstep
