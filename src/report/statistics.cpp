#include "lockstep/report/statistics.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep {

namespace {

/// The quantile of ascending values, with linear interpolation.
double quantile(std::span<const double> sorted, double probability) {
  const double place = probability * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

double central_t(double level, double degrees) {
  require(level > 0 && level < 1 && degrees > 0, "Student's t of level ", level, " with ", degrees,
          " degrees of freedom");
  return boost::math::quantile(boost::math::students_t(degrees), (1 + level) / 2);
}

MeanInterval mean_interval(std::span<const double> values, double level) {
  require(!values.empty() && level > 0 && level < 1, "interval of level ", level, " of ", values.size(), " values");
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(values.size());
  const bool equal = std::all_of(values.begin(), values.end(), [&](double value) { return value == values[0]; });
  // The sum of equal values divided by their number may differ from them in the last bit.
  const double mean = equal ? values[0] : std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (n - 1));  // NaN of a single value
  const double error = deviation / std::sqrt(n);
  if (error == 0) return {{mean, mean, mean}, kNone, 0};
  if (!std::isfinite(error)) return {{mean, kNone, kNone}, kNone, kNone};
  const double width = central_t(level, n - 1) * error;
  const boost::math::students_t student(n - 1);
  return {{mean, mean - width, mean + width},
          2 * boost::math::cdf(boost::math::complement(student, std::abs(mean) / error)),
          deviation};
}

Interval paired_bootstrap(std::span<const double> a, std::span<const double> b, std::uint64_t seed,
                          std::int64_t resamples, double level) {
  require(!a.empty() && a.size() == b.size(), "comparing two systems: ", a.size(), " values of one and ", b.size(),
          " of the other; both need a value of each sample");
  require(a.size() <= std::numeric_limits<std::uint32_t>::max(), "bootstrap of ", a.size(), " samples: too many");
  require(resamples >= 1 && level > 0 && level < 1, "bootstrap with ", resamples, " resamples at level ", level,
          ": needs at least one resample and a level between 0 and 1");
  std::vector<double> difference(a.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference[i] = a[i] - b[i];
    require(std::isfinite(difference[i]), "comparing two systems: values ", a[i], " and ", b[i], " of sample ", i,
            " are not finite");
    sum += difference[i];
  }
  const auto n = static_cast<double>(a.size());
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (a.size() == 1) return {sum, kNone, kNone};
  std::vector<double> means(resamples);
  for (std::int64_t r = 0; r < resamples; ++r) {
    const Philox draws(seed, static_cast<std::uint64_t>(r), "bootstrap");
    double total = 0;
    for (std::size_t i = 0; i < difference.size(); i += 4) {
      const auto words = draws.block(i / 4);
      for (std::size_t j = 0; j < std::min<std::size_t>(4, difference.size() - i); ++j)
        total += difference[(std::uint64_t{words[j]} * difference.size()) >> 32];  // the bias is below n / 2^32
    }
    means[r] = total / n;
  }
  std::sort(means.begin(), means.end());
  return {sum / n, quantile(means, (1 - level) / 2), quantile(means, (1 + level) / 2)};
}

}  // namespace lockstep
