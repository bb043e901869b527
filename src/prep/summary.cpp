#include "lockstep/prep/summary.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

namespace {
constexpr const char* kAttribute = "warnings";
}

void Summary::column(const std::string& name, const std::string& unit, std::span<const double> values) {
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  const std::size_t missing = values.size() - finite.size();
  const std::string without = missing > 0 ? join(", ", missing, " of ", values.size(), " missing") : "";
  if (finite.empty()) return line(name, "no values", without);
  std::ranges::sort(finite);
  line(name, printed("%.6g to %.6g", finite.front(), finite.back()), unit.empty() ? ", unit unknown" : " " + unit,
       ", median ", printed("%.6g", finite[finite.size() / 2]), without);

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
  constexpr std::size_t kWidth = 19;
  for (const auto& [name, text] : lines_)
    out << "  " << name << std::string(name.size() < kWidth ? kWidth - name.size() : 1, ' ') << text << "\n";
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
