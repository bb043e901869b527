#pragma once
// The sums of HarTask's evaluation, and the metrics computed from them.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/report/metric.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Views of the sums of one evaluation: rows (windows, or channels of windows), their loss, correctly classified rows,
/// and the confusion matrix of windows (true class, predicted class).
struct HarSums {
  HarSums(double* sums, std::int64_t classes)
      : rows(sums), loss(sums + 1), correct(sums + 2), confusion(sums + 3), classes(classes) {}
  static std::int64_t count(std::int64_t classes) { return 3 + classes * classes; }
  /// Adds the classifications of logits (N, classes). Each `group` consecutive rows are one window.
  void add(const Tensor& logits, std::span<const std::int32_t> labels, std::int64_t group) const;

  double *rows, *loss, *correct, *confusion;
  std::int64_t classes;
};

/// The class with the largest of these values; of equal values, the lower class.
std::int64_t largest_class(std::span<const double> values);

/// The metrics with the names and in the order of HarTask.
std::vector<Metric> har_metrics(const std::vector<double>& sums, const std::vector<std::string>& classes,
                                bool per_channel);
MetricTable har_confusion(const std::vector<double>& sums, const std::vector<std::string>& classes);

}  // namespace lockstep
