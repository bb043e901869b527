#pragma once
// The layout of EmulatorTask's evaluation sums, and the metrics computed from them.
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/report/metric.hpp"
#include "lockstep/tasks/emulator/emulator_data.hpp"

namespace lockstep::emulator_metrics {

/// Sums over rows for one output, in normalised units: p = prediction, t = target, e = p - t.
struct OutputSums {
  double ee, abs_e, e, t, tt, p, pp, tp;
};
/// Sums over rows whose target aice lies in a range, in physical units.
struct RangeSums {
  double rows, e, ee;
};
/// Histogram of the Jacobian's relative error per row: kBins bins, of equal width in log10 between kLow and kHigh.
/// Errors outside that range go to the first or last bin.
inline constexpr std::int64_t kBins = 4096;
inline constexpr double kLow = -4, kHigh = 2;

/// Views of a sums array.
struct Sums {
  double* rows;            ///< [0] number of rows, [1] summed loss
  OutputSums* output;      ///< (n_out)
  RangeSums* ice_edge;     ///< 0.10 <= aice <= 0.16; null without an output aice
  RangeSums* open_water;   ///< aice < 0.05; null without an output aice
  double* jacobian_error;  ///< (kBins); null if the data set has no Jacobians
  Sums(double* sums, std::int64_t n_out, bool aice, bool jacobian);
  static std::int64_t count(std::int64_t n_out, bool aice, bool jacobian);
};

std::int64_t bin_of(double relative_error);
/// The median of the binned errors, interpolated within its bin; 0 if the histogram is empty.
double median(const double* bins);

/// Names and order are EmulatorTask's.
std::vector<Metric> metrics(const Sums& sums, std::int64_t n_out, const std::vector<std::string>& names,
                            const std::vector<double>& output_std);

}  // namespace lockstep::emulator_metrics
