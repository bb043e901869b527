#include "lockstep/prep/summary.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <tuple>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

namespace {
constexpr const char* kAttribute = "warnings";

/// How far from the other values, in their range, a number that may stand for "missing" lies. Programs write three or
/// more nines (-9999, 999.9) or an end of the 16-bit and 32-bit integers for it, less often two nines.
double apart(double value) {
  const double size = std::abs(value);
  for (const double end : {0x1p15, 0x1p16, 0x1p31, 0x1p32})
    if (size == end || size == end - 1) return 0.5;
  const std::string digits = printed("%.7g", size);
  const auto nines = digits.find_first_not_of("9.") == std::string::npos ? std::ranges::count(digits, '9') : 0;
  return nines > 2 ? 0.5 : nines == 2 ? 3 : 30;
}

/// Removes from sorted values one that recurs at an end and lies apart from all others; returns it and its count.
std::pair<double, std::size_t> take_code(std::vector<double>& sorted) {
  constexpr std::size_t kVaried = 10;  // categories have fewer values
  if (sorted.empty()) return {};
  for (const double value : {sorted.front(), sorted.back()}) {
    const auto [begin, end] = std::ranges::equal_range(sorted, value);
    const auto count = static_cast<std::size_t>(end - begin);
    if (value == 0 || count == sorted.size()) continue;
    const bool low = begin == sorted.begin();
    const double next = low ? *end : *(begin - 1), other = low ? sorted.back() : sorted.front();
    const double gap = std::abs(value - next), range = std::abs(other - next);
    std::size_t different = 1;
    for (auto at = low ? end : sorted.begin(), last = low ? sorted.end() : begin; at + 1 < last && different < kVaried;
         ++at)
      different += *at != *(at + 1);
    const bool usual = apart(value) < 1;
    if (range == 0 || gap <= apart(value) * range || (!usual && (count == 1 || different < kVaried))) continue;
    sorted.erase(begin, end);
    return {value, count};
  }
  return {};
}
}  // namespace

void Summary::column(const std::string& name, const std::string& unit, std::span<const double> values) {
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  const std::size_t missing = values.size() - finite.size();
  const std::string without = missing > 0 ? join(", ", missing, " of ", values.size(), " missing") : "";
  constexpr std::size_t kShown = 40;
  const auto add = [&](const auto&... parts) {
    if (++columns_ <= kShown) return line(name, parts...);
    if (columns_ == kShown + 1) {
      line("", "");
      rest_ = lines_.size() - 1;
    }
    lines_[rest_].text = join("and ", columns_ - kShown, " more columns");
  };
  if (finite.empty()) return add("no values", without);
  std::ranges::sort(finite);
  add(printed("%.6g to %.6g", finite.front(), finite.back()), unit.empty() ? ", unit unknown" : " " + unit, ", median ",
      printed("%.6g", finite[finite.size() / 2]), without);

  for (auto [code, count] = take_code(finite); count > 0; std::tie(code, count) = take_code(finite))
    warning("column ", name, ": ", count, " of ", values.size(), " values are ", printed("%.7g", code),
            ", and the others lie in ", printed("%.6g to %.6g", finite.front(), finite.back()),
            "; if it stands for missing values, declare it in the file or mask its points");
  // A fill value lies far beyond what is typical, with nothing between it and the other values; precipitation, for
  // one, spans more orders of magnitude than that, but fills them.
  constexpr double kAbsurd = 1e30, kTimesTypical = 1e6, kTimesNext = 100;
  std::erase(finite, 0.0);
  std::ranges::transform(finite, finite.begin(), [](double v) { return std::abs(v); });
  std::ranges::sort(finite);
  if (finite.empty()) return;
  const double typical = finite[finite.size() / 2];
  auto far = std::ranges::lower_bound(finite, kAbsurd);
  for (auto at = std::ranges::lower_bound(finite, kTimesTypical * typical); at < far; ++at)
    if (*at >= kTimesNext * *(at - 1)) far = at;
  if (far == finite.end()) return;
  warning("column ", name, ": ", finite.end() - far, " of ", values.size(), " values have magnitudes of ",
          printed("%.6g", *far), " to ", printed("%.6g", finite.back()), ", and a typical one is ",
          printed("%.3g", typical), "; if these are fill values, declare them in the file or mask their points");
}

void Summary::print(std::ostream& out) const {
  constexpr std::size_t kMost = 44;  // longer names stand out of the column
  std::size_t width = 19;
  for (const auto& line : lines_)
    if (line.name.size() < kMost) width = std::max(width, line.name.size() + 1);
  for (const auto& [name, text] : lines_)
    out << "  " << name << std::string(name.size() < width ? width - name.size() : 1, ' ') << text << "\n";
}

void Summary::settle(bool strict, DatasetNotes& notes) const {
  if (warnings_.empty()) return;
  require_data(!strict, "preparing with --strict: ", listed(warnings_, "\n  "));
  for (const auto& text : warnings_) log::warning(text);
  notes.emplace_back(kAttribute, warnings_);
}

std::vector<std::string> stored_warnings(const H5File& file) {
  return file.has_attribute("/", kAttribute) ? file.text_list("/", kAttribute) : std::vector<std::string>{};
}

}  // namespace lockstep::prep
