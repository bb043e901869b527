#pragma once
#include <cstdint>
#include <span>

namespace lockstep {

/// An estimate with a confidence interval.
struct Interval {
  double value = 0, low = 0, high = 0;
};

/// The mean difference of two systems over the same samples, with a percentile bootstrap interval. A resample draws n
/// samples with replacement and takes both values of each, so what makes a sample easy for both systems cancels.
///
///   value = mean_i (a_i - b_i);   [low, high] = the (1 - level)/2 and (1 + level)/2 quantiles of mean_j (a_j - b_j) over
///   resamples j, between two order statistics by linear interpolation
///
/// The draws are functions of (seed, resample, index).
///
/// shapes  a, b (n), n >= 1
/// range   resamples >= 1; 0 < level < 1
/// errors  Error: a and b of different sizes or empty; resamples or level out of range; a value that is not finite
/// source  Efron, Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3
Interval paired_bootstrap(std::span<const double> a, std::span<const double> b, std::uint64_t seed,
                          std::int64_t resamples, double level);

}  // namespace lockstep
