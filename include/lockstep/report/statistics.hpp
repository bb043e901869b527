#pragma once
#include <cstdint>
#include <span>

namespace lockstep {

/// An estimate with a confidence interval.
struct Interval {
  double value = 0, low = 0, high = 0;
};

/// The half width t of the central interval of Student's distribution: P(|T| <= t) = level.
///
/// range   0 < level < 1; degrees > 0, the degrees of freedom
/// errors  Error: a value out of range
/// source  Student 1908, "The probable error of a mean"
double central_t(double level, double degrees);

/// The interval of a mean, and the test of the hypothesis that the true mean is 0.
struct MeanInterval : Interval {
  double p = 0;          ///< two-sided
  double deviation = 0;  ///< standard deviation s of the values
  double half_width() const { return high - value; }
};
/// Student's interval of the mean of n independent values, value +- t_{n-1} s / sqrt(n). For paired differences, p is
/// the p-value of the paired t-test. A single value has no interval: low, high, p and the deviation are NaN. If all
/// values are equal, low and high equal them, and there is no test: p is NaN.
///
/// range   0 < level < 1
/// errors  Error: no values, or a level out of range
/// source  Student 1908, "The probable error of a mean"
MeanInterval mean_interval(std::span<const double> values, double level = 0.95);

/// The mean difference of two systems over the same samples, with a percentile bootstrap interval. A resample draws n
/// samples with replacement and uses both values of each sample, so effects common to both systems cancel.
///
///   value = mean_i (a_i - b_i);   [low, high] = the (1 - level)/2 and (1 + level)/2 quantiles, over the resamples, of
///   their mean difference; a quantile between two order statistics is interpolated linearly
///
/// The draws are functions of (seed, resample, index). A single sample has no interval: low and high are NaN.
///
/// shapes  a, b (n), n >= 1
/// range   resamples >= 1; 0 < level < 1
/// errors  Error: a and b of different sizes or empty; resamples or level out of range; a value that is not finite
/// source  Efron, Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3
Interval paired_bootstrap(std::span<const double> a, std::span<const double> b, std::uint64_t seed,
                          std::int64_t resamples, double level);

}  // namespace lockstep
