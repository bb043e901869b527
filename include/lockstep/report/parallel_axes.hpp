#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A vertical axis of a picture in parallel coordinates. Places lie in [0, 1], from below.
struct ParallelAxis {
  std::string title;
  std::vector<std::pair<double, std::string>> marks = {};  ///< place and text
  std::vector<double> places = {};                         ///< where each line crosses
};

/// Lines across all axes as SVG, in the order of their quality: the first `best` have a colour of their own. notes: what
/// the pointer shows of each line
std::string parallel_axes_svg(const std::vector<ParallelAxis>& axes, const std::vector<std::string>& notes,
                              std::size_t best);

}  // namespace lockstep
