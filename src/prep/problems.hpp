#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::prep {

/// Problems of a prepared file, one line each.
using Problems = std::vector<std::string>;

/// The values of a dataset, or of its column of this name.
struct Range {
  std::int64_t least = 0, most = std::numeric_limits<std::int64_t>::max();
  const char* column = "";
};
/// The values must be within the ranges of their columns. Floats may miss them by 0.001; those that are NaN pass.
template <class T>
void check_ranges(const std::string& dataset, const std::vector<T>& values, const std::vector<Range>& columns,
                  Problems& problems) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& [least, most, column] = columns[c];
    const Wide low = static_cast<Wide>(least) - static_cast<Wide>(1e-3),
               high = static_cast<Wide>(most) + static_cast<Wide>(1e-3);
    std::size_t bad = 0, first = 0;
    for (std::size_t i = c; i < values.size(); i += columns.size())
      if ((values[i] < low || values[i] > high) && bad++ == 0) first = i;
    if (bad > 0)
      problems.push_back(join(dataset, *column == 0 ? "" : " column ", column, " row ", first / columns.size(), ": ",
                              static_cast<Wide>(values[first]), ", must be ", most == Range().most ? ">= " : "", least,
                              most == Range().most ? "" : join(" .. ", most), " (", bad, " of ",
                              values.size() / columns.size(), " values)"));
  }
}

/// Names must be non-empty and distinct; `what` names them in messages.
void check_names(const std::vector<std::string>& names, const std::string& what, Problems& problems);
/// There must be one checksum per raw file.
void check_sums(const std::vector<std::string>& sources, const std::vector<std::string>& sums, Problems& problems);
/// errors  data: the first of the problems
void require_sound(const Problems& problems, const std::filesystem::path& file);
struct ColumnMoments {
  const std::vector<double>&mean, &std;
};
/// Compares the stored moments of columns with the recomputed ones, to 1e-9; constant columns are remarks.
void check_moments(const std::vector<std::string>& columns, const ColumnMoments& stored, const ColumnMoments& computed,
                   Problems& problems, std::vector<std::string>& remarks);

}  // namespace lockstep::prep
