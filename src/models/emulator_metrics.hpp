#pragma once
// How EmulatorModel's evaluation sums are laid out, and what they amount to.
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/emulator_data.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep::emulator_metrics {

/// Sums over rows. Of each output, in normalised units: e = prediction - target, t = target, p = prediction.
struct OutputSums {
  double ee, abs_e, e, t, tt, p, pp, tp;
};
/// Of rows whose target aice lies in a range, in physical units.
struct RangeSums {
  double rows, e, ee;
};
/// Relative errors of the Jacobian per row, counted in bins of equal width in log10 over kLow .. kHigh; smaller and larger ones go to the end bins.
inline constexpr std::int64_t kBins = 4096;
inline constexpr double kLow = -4, kHigh = 2;

/// The parts of a sums array.
struct Sums {
  double* rows;            ///< [0] rows, [1] loss: sum over rows
  OutputSums* output;      ///< (n_out)
  RangeSums* ice_edge;     ///< 0.10 <= aice <= 0.16; null unless there is an aice
  RangeSums* open_water;   ///< aice < 0.05
  double* jacobian_error;  ///< (kBins); null unless the truth is known
  Sums(double* sums, std::int64_t n_out, bool aice, bool jacobian);
  static std::int64_t count(std::int64_t n_out, bool aice, bool jacobian);
};

std::int64_t bin_of(double relative_error);
/// The median of the binned errors, its bin interpolated; 0 if there is none.
double median(const double* bins);

std::vector<Metric> metrics(const Sums& sums, std::int64_t n_out, const std::vector<std::string>& names,
                            const std::vector<double>& output_std);

}  // namespace lockstep::emulator_metrics
