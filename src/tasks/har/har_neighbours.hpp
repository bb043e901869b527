#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tasks/har/har_data.hpp"

namespace lockstep {

/// Classifies a window by its nearest training windows: the baseline that a trained network must beat.
///
/// Features of a channel: mean, deviation, smallest and largest value, mean absolute step, and the share of steps that
/// cross the mean; each normalised by its mean and deviation over the training windows. Of more than kMostWindows
/// training windows every so many are used, which bounds the cost. Everything is computed in f64 and in one order, so
/// results do not depend on ranks and threads.
class HarNeighbours {
 public:
  static constexpr std::int64_t kMostWindows = 5000, kNeighbours = 9;
  /// train  numbers of the training windows, at least one
  HarNeighbours(const HarData& data, std::span<const std::int32_t> train);
  /// The class with the most of the nearest windows; of equal numbers, the class of the nearest one.
  std::int32_t class_of(const double* window) const;

 private:
  std::vector<double> features_of(const double* window) const;

  std::int64_t channels_, length_;
  std::vector<double> mean_, scale_;   ///< of each feature
  std::vector<double> features_;       ///< (windows, features), normalised
  std::vector<std::int32_t> classes_;  ///< of the windows
};

}  // namespace lockstep
