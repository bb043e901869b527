#pragma once
#include <span>
#include <vector>

#include "lockstep/tasks/emulator/emulator_data.hpp"

namespace lockstep {

/// A guess t = W z + b of the normalised outputs from the normalised inputs.
struct AffineGuess {
  std::vector<double> weights, bias;  ///< (n_out, n_in), which is also its Jacobian; (n_out)
  /// The guess for one row of inputs in physical units.
  void predict(const Moments& moments, std::span<const float> x, std::span<double> t) const;
};

/// Predicts each output as the input of the same name and level, or as its training mean if there is no such input.
/// found  whether any output has such an input
AffineGuess persistence(const EmulatorData& data, bool& found);

/// Linear regression on the training rows (at most 100,000, spread over them), in double: the normal equations with
/// 1e-6 added to their diagonal, so that inputs may depend on each other. The bias is not penalised.
AffineGuess linear_regression(const EmulatorData& data);

}  // namespace lockstep
