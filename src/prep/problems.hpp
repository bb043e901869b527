#pragma once
#include <string>
#include <vector>

namespace lockstep::prep {

/// Problems of a prepared file, one line each.
using Problems = std::vector<std::string>;

/// Names must be non-empty and distinct; `what` names them in messages.
void check_names(const std::vector<std::string>& names, const std::string& what, Problems& problems);
/// There must be one checksum per raw file.
void check_sums(const std::vector<std::string>& sources, const std::vector<std::string>& sums, Problems& problems);
struct ColumnMoments {
  const std::vector<double>&mean, &std;
};
/// Compares the stored moments of columns with the recomputed ones, to 1e-9; constant columns are remarks.
void check_moments(const std::vector<std::string>& columns, const ColumnMoments& stored, const ColumnMoments& computed,
                   Problems& problems, std::vector<std::string>& remarks);

}  // namespace lockstep::prep
