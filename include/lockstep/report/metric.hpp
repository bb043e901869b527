#pragma once
#include <string>
#include <vector>

namespace lockstep {

/// A named value of an evaluation.
struct Metric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;
};

/// Values in rows and columns, such as a confusion matrix.
struct MetricTable {
  std::string name;  ///< "confusion"
  std::vector<std::string> rows, columns;
  std::vector<double> values;  ///< (rows, columns)
};

}  // namespace lockstep
