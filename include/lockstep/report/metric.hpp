#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace lockstep {

/// A named value of an evaluation.
struct Metric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;
};

/// The metric of this name, or null.
inline const Metric* find_metric(const std::vector<Metric>& metrics, const std::string& name) {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? nullptr : &*found;
}
/// Its value, or NaN.
inline double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  const Metric* found = find_metric(metrics, name);
  return found == nullptr ? std::nan("") : found->value;
}

/// The metrics of a baseline: "most popular items".
struct BaselineMetrics {
  std::string name;
  std::vector<Metric> metrics;  ///< a subset of the model's metrics, in the same order
};

/// Values in rows and columns, such as a confusion matrix.
struct MetricTable {
  std::string name;  ///< "confusion"
  std::vector<std::string> rows, columns;
  std::vector<double> values;  ///< (rows, columns)
};

/// Precision, recall, F1 and support (number of true samples) of each class of a confusion matrix, whose rows are the
/// true classes. A ratio without samples is 0.
MetricTable class_scores(const MetricTable& confusion);
/// The table as text: its name, then aligned rows.
std::string text_of(const MetricTable& table);

}  // namespace lockstep
