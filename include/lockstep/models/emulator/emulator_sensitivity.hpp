#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/models/emulator/emulator.hpp"

namespace lockstep {

/// Statistics of the network's sensitivities R_ri = sum_o d y_norm,o / d z_i over rows r.
struct SensitivityMetrics {
  std::vector<double> rows;  ///< R, (rows, n_in)
  double frobenius_norm = 0;
  double mean_abs_gradient = 0;
  double spectral_norm = 0;                 ///< largest singular value
  double stability = 0;                     ///< largest over smallest singular value; 1e6 if the smallest is <= 1e-12
  double max_gradient = 0;                  ///< largest |R|
  double gradient_std = 0;                  ///< population standard deviation
  std::vector<double> feature_sensitivity;  ///< mean |R| per input
  std::int64_t most_sensitive_feature = 0;
  double max_sensitivity = 0;  ///< mean |R| of that feature
};
/// Sensitivities at x (rows, n_in), in physical units. All statistics are NaN if one sensitivity is not finite.
SensitivityMetrics sensitivity_metrics(const Emulator& emulator, std::int64_t rows, const float* x);

}  // namespace lockstep
