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
/// Sums over rows of an ensemble for one output, in normalised units: squared errors of the members, divided by their
/// number; variance of the members (divisor N - 1); CRPS; targets within the intervals of kPercents.
struct EnsembleSums {
  double member_ee, variance, crps, covered[3];
};
/// The intervals of an ensemble: the share of the targets that each holds if targets and members are drawn from one
/// normal distribution. Then (t - mean) / (sqrt((N + 1) / N) s) of N members has Student's distribution with N - 1
/// degrees of freedom.
inline constexpr int kPercents[3] = {50, 90, 95};
/// Histogram of the Jacobian's relative error per row: kBins bins, of equal width in log10 between kLow and kHigh.
/// Errors outside that range go to the first or last bin.
inline constexpr std::int64_t kBins = 4096;
inline constexpr double kLow = -4, kHigh = 2;

/// Determines which sums exist.
struct Layout {
  std::int64_t n_out;
  bool aice, jacobian;       ///< an output aice; true Jacobians in the data set
  std::int64_t members = 1;  ///< above 1: an ensemble
  std::int64_t constraints = 0;
};

/// Views of a sums array.
struct Sums {
  Layout layout;
  double* rows;            ///< [0] number of rows, [1] summed loss
  OutputSums* output;      ///< (n_out)
  RangeSums* ice_edge;     ///< 0.10 <= aice <= 0.16; null without an output aice
  RangeSums* open_water;   ///< aice < 0.05; null without an output aice
  double* jacobian_error;  ///< (kBins); null if the data set has no Jacobians
  EnsembleSums* ensemble;  ///< (n_out); null for one network
  double* ranks;           ///< (members + 1) targets, all outputs, by the number of members below them; null likewise
  double* constraint;      ///< (constraints) absolute values, physical; null without
  /// All views are null if `sums` is.
  Sums(double* sums, const Layout& layout);
  static std::int64_t count(const Layout& layout);
  /// Sets the sums of an ensemble to NaN.
  void forget_ensemble() const;
};

/// Adds the sums of an ensemble, and computes the mean of its members.
///
/// shapes   each prediction, target, mean (rows, n_out), normalised, in host memory
void add_ensemble(const Sums& to, const std::vector<Tensor>& predictions, const Tensor& target, const Tensor& mean);

std::int64_t bin_of(double relative_error);
/// The median of the binned errors, interpolated within its bin; 0 if the histogram is empty.
double median(const double* bins);

/// Names and order are EmulatorTask's.
std::vector<Metric> metrics(const Sums& sums, const std::vector<std::string>& names,
                            const std::vector<double>& output_std);

}  // namespace lockstep::emulator_metrics
