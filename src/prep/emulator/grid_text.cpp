/// Parses columns, masks and dates.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/emulator/grid.hpp"

namespace lockstep::prep {

namespace {
/// Removes a number, which may begin with +, from the start of `text`.
bool take(std::string_view& text, auto& out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return take_number(text, out);
}
}  // namespace

std::vector<ColumnSpec> parse_columns(std::string_view text) {
  constexpr std::int64_t kMostLevels = 10000;
  ColumnSpec out;
  std::optional<std::int64_t> last;  // level of a range
  const auto reject = [&] {
    return Error(Fault::usage,
                 join("column '", text,
                      "': expected short=name[@level[:level]][*scale[+offset]], for example tk=temperature@0*1+273.15, "
                      "or t=temperature@0:34 for 35 columns"));
  };
  std::string_view rest = text;
  const auto equals = rest.find('=');
  if (equals != std::string_view::npos) {
    out.short_name = trim(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
  }
  const auto name_end = std::min(rest.find_first_of("@*"), rest.size());
  out.variable = trim(rest.substr(0, name_end));
  rest.remove_prefix(name_end);
  if (equals == std::string_view::npos) out.short_name = out.variable;
  if (out.short_name.empty() || out.variable.empty()) throw reject();
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    if (!take(rest, out.level.emplace())) throw reject();
    if (rest.starts_with(':')) {
      rest.remove_prefix(1);
      if (!take(rest, last.emplace()) || *last < *out.level || *last - *out.level >= kMostLevels ||
          (*last < 0) != (*out.level < 0))
        throw reject();
    }
  }
  if (rest.starts_with('*')) {
    rest.remove_prefix(1);
    if (!take(rest, out.scale)) throw reject();
    if (!rest.empty() && (rest.front() == '+' || rest.front() == '-') && !take(rest, out.offset)) throw reject();
  }
  if (!trim(rest).empty() || !std::isfinite(out.scale) || !std::isfinite(out.offset)) throw reject();
  if (!last) return {out};
  std::vector<ColumnSpec> columns;
  const std::string name = out.short_name;
  for (; *out.level <= *last; ++*out.level) {
    out.short_name = join(name, "_", *out.level);
    columns.push_back(out);
  }
  return columns;
}

std::vector<MaskTerm> parse_mask(std::string_view text) {
  constexpr std::string_view kSigns = "=!<>";
  constexpr std::array<std::string_view, 6> kOps = {"==", "!=", "<", "<=", ">", ">="};
  std::vector<MaskTerm> terms;
  const std::string whole = trim(text);
  for (std::size_t begin = 0; begin < whole.size();) {
    std::size_t end = whole.find(" and ", begin);
    if (end == std::string::npos) end = whole.size();
    const std::string term = whole.substr(begin, end - begin);
    const auto at = std::min(term.find_first_of(kSigns), term.size());
    const auto value_at = std::min(term.find_first_not_of(kSigns, at), term.size());
    MaskTerm parsed{trim(term.substr(0, at)), term.substr(at, value_at - at), 0};
    const std::string number = trim(term.substr(value_at));
    std::string_view rest = number;
    const bool good = !parsed.variable.empty() && std::ranges::find(kOps, parsed.op) != kOps.end() &&
                      take(rest, parsed.value) && rest.empty();
    require_usage(good, "mask '", text, "': expected 'variable op number [and ...]' with op one of == != < <= > >=");
    terms.push_back(std::move(parsed));
    begin = end + 5;
  }
  return terms;
}

bool satisfies(double value, const MaskTerm& term) {
  if (!std::isfinite(value)) return false;
  const int order = compare(value, term.value);
  if (term.op == "==") return order == 0;
  if (term.op == "!=") return order != 0;
  if (term.op == "<") return order < 0;
  if (term.op == "<=") return order <= 0;
  if (term.op == ">") return order > 0;
  return order >= 0;
}

int compare(double value, double number) {
  const bool single = static_cast<double>(static_cast<float>(value)) == value;
  const bool equal = single ? static_cast<float>(value) == static_cast<float>(number)
                            : std::abs(value - number) <= 4 * std::numeric_limits<double>::epsilon() * std::abs(number);
  return equal ? 0 : value < number ? -1 : 1;
}

std::int64_t parse_day(std::string_view text, Calendar calendar) {
  const std::string day(trim(text));
  int y = 0, m = 0, d = 0, used = 0;
  const bool read =
      std::sscanf(day.c_str(), "%d-%d-%d%n", &y, &m, &d, &used) == 3 && used == static_cast<int>(day.size());
  const auto number = read ? day_number(calendar, y, m, d) : std::nullopt;
  require_usage(number.has_value(), "day '", text, "': expected a date of the ", name(calendar),
                " calendar like 2016-02-05");
  return *number;
}

}  // namespace lockstep::prep
