#include "prep/problems.hpp"

#include <algorithm>
#include <cmath>
#include <set>
namespace lockstep::prep {

void check_names(const std::vector<std::string>& names, const std::string& what, Problems& problems) {
  const std::set<std::string> different(names.begin(), names.end());
  if (different.size() != names.size() || different.contains(""))
    problems.push_back("the " + what + " are not all different and non-empty");
}

void check_sums(const std::vector<std::string>& sources, const std::vector<std::string>& sums, Problems& problems) {
  if (sums.size() != sources.size())
    problems.push_back(join(sums.size(), " checksums for ", sources.size(), " sources"));
}

void require_sound(const Problems& problems, const std::filesystem::path& file) {
  require_data(problems.empty(), "describing '", file.string(), "': ", problems.empty() ? "" : problems.front());
}

void check_moments(const std::vector<std::string>& columns, const ColumnMoments& stored, const ColumnMoments& computed,
                   Problems& problems, std::vector<std::string>& remarks) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const double mean = computed.mean[c], std = computed.std[c], bound = 1e-9 * std::max({std::abs(mean), std, 1e-30});
    if (!(std::abs(stored.mean[c] - mean) <= bound) || !(std::abs(stored.std[c] - std) <= bound))
      problems.push_back(join("moments of ", columns[c], ": stored mean ", stored.mean[c], ", std ", stored.std[c],
                              "; the rows give ", mean, ", ", std));
    if (std == 1.0) remarks.push_back(columns[c] + " is constant (its standard deviation counts as 1)");
  }
}

}  // namespace lockstep::prep
