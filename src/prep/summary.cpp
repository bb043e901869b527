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
  const auto middle_of = [](std::vector<double>& of) {
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
    std::ranges::nth_element(of, middle);
    return *middle;
  };
  const auto [least, most] = std::ranges::minmax(finite);
  line(name, printed("%.6g to %.6g", least, most), unit.empty() ? ", unit unknown" : " " + unit, ", median ",
       printed("%.6g", middle_of(finite)), without);

  // Physical columns span a few orders of magnitude around their typical size; fill values lie far beyond it.
  constexpr double kAbsurd = 1e15, kTimesTypical = 1e6;
  std::erase(finite, 0.0);
  std::ranges::transform(finite, finite.begin(), [](double v) { return std::abs(v); });
  if (finite.empty()) return;
  const double typical = middle_of(finite), largest = std::ranges::max(finite);
  if (largest < kAbsurd && largest < kTimesTypical * typical) return;
  const double limit = largest >= kAbsurd ? std::min(kAbsurd, largest) : kTimesTypical * typical;
  const auto far = std::ranges::count_if(finite, [&](double v) { return v >= limit; });
  warning("column ", name, ": ", far, " of ", values.size(), " values have a magnitude of ", printed("%.3g", limit),
          " or more, up to ", printed("%.6g", largest), ", and half are below ", printed("%.3g", typical),
          "; if these are fill values, declare them in the file or mask their points");
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
