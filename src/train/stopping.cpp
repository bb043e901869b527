#include "train/stopping.hpp"

#include <algorithm>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

/// (max - min) / max of the last `window` values, or 1 when there are fewer.
double spread(const std::vector<double>& values, std::int64_t window) {
  if (static_cast<std::int64_t>(values.size()) < window) return 1;
  const auto [low, high] = std::minmax_element(values.end() - window, values.end());
  return *high > 0 ? (*high - *low) / *high : 0;
}

}  // namespace

std::string stop_reason(const RunConfig::Stop& rules, const TrainState& state) {
  if (rules.patience > 0 && state.since_best >= rules.patience) {
    return join("no better validation for ", state.since_best, " evaluations (stop.patience)");
  }
  if (rules.tolerance > 0 && state.epoch >= rules.min_epochs) {
    const double change = spread(state.history.known(kValidationLoss), rules.window);
    if (change < rules.tolerance) {
      return join("validation loss moved by ", change, " of itself in ", rules.window, " evaluations (stop.tolerance)");
    }
  }
  if (rules.jacobian_tolerance > 0 && state.epoch >= rules.jacobian_min_epochs) {
    std::vector<double> values = state.history.known(kMeanAbsGradient);
    if (values.empty()) values = state.history.known(kFrobeniusNorm);
    const double change = spread(values, rules.jacobian_window);
    if (change < rules.jacobian_tolerance) {
      return join("sensitivities moved by ", change, " of themselves in ", rules.jacobian_window,
                  " looks (stop.jacobian_tolerance)");
    }
  }
  return "";
}

}  // namespace lockstep
