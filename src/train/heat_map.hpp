#pragma once
#include <string>

#include "lockstep/models/model.hpp"

namespace lockstep {

/// A table as a picture: each cell shaded by its part of its row's sum (a confusion matrix: of the true class), with its
/// value.
std::string heat_map_svg(const MetricTable& table);
/// The same without names of rows and columns, for TensorBoard. Pixels: kHeatMapCell per cell.
std::string heat_map_png(const MetricTable& table);
inline constexpr int kHeatMapCell = 48;

}  // namespace lockstep
