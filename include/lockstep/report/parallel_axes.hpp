#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A vertical axis of a picture in parallel coordinates.
struct ParallelAxis {
  std::string title;
  std::vector<std::pair<double, std::string>> marks;  ///< place in [0, 1] from below, and its text
};

/// A line across all axes.
struct ParallelLine {
  std::vector<double> places;  ///< one in [0, 1] per axis
  std::string note;            ///< what the pointer shows
};

/// The lines in parallel coordinates, as SVG. The lines are in the order of their quality: the first `best` have a
/// colour of their own.
std::string parallel_axes_svg(const std::vector<ParallelAxis>& axes, const std::vector<ParallelLine>& lines,
                              std::size_t best);

}  // namespace lockstep
