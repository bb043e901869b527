#pragma once
#include <string>

#include "lockstep/report/metric.hpp"

namespace lockstep {

/// A table as SVG. Each cell shows its value, shaded by its fraction of the row's sum: in a confusion matrix, the
/// fraction of the true class.
std::string heat_map_svg(const MetricTable& table);
/// The same as a PNG without row and column names, for TensorBoard. Units: kHeatMapCell pixels per cell.
std::string heat_map_png(const MetricTable& table);
inline constexpr int kHeatMapCell = 48;

}  // namespace lockstep
