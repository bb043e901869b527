#pragma once
// What an evaluation of activities adds up, and the figures that follow from it.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/models/model.hpp"

namespace lockstep {

/// Where the sums of one evaluation lie: rows (windows, or channels of windows), their loss, rows classified rightly, and the
/// confusion of windows (true class, predicted class).
struct HarSums {
  HarSums(double* sums, std::int64_t classes)
      : rows(sums), loss(sums + 1), right(sums + 2), confusion(sums + 3), classes(classes) {}
  static std::int64_t count(std::int64_t classes) { return 3 + classes * classes; }
  /// Adds the classifications of logits (N, classes); each `group` consecutive rows are one window, whose class is that of
  /// the largest mean of log-probabilities.
  void add(const Tensor& logits, std::span<const std::int32_t> labels, std::int64_t group) const;

  double *rows, *loss, *right, *confusion;
  std::int64_t classes;
};

/// Names and order are HarModel's.
std::vector<Metric> har_metrics(const std::vector<double>& sums, const std::vector<std::string>& classes,
                                bool per_channel);
MetricTable har_confusion(const std::vector<double>& sums, const std::vector<std::string>& classes);

}  // namespace lockstep
