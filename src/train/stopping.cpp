#include "lockstep/train/stopping.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep {

namespace {

/// (max - min) / max of the last `window` values, or 1 when there are fewer.
double spread(const std::vector<double>& values, std::int64_t window) {
  if (std::ssize(values) < window) return 1;
  const auto [low, high] = std::minmax_element(values.end() - window, values.end());
  return *high > 0 ? (*high - *low) / *high : 0;
}

}  // namespace

std::string stop_reason_of_epoch(const RunConfig::Stop& rules, const TrainState& state) {
  constexpr std::int64_t kEvery = 10, kPatience = 3;
  constexpr double kChange = 0.005;
  if (rules.rule != "train_loss" || state.epoch % kEvery != 0) return "";
  std::vector<double> losses;  // of whole epochs: evaluations within an epoch have separate records
  const std::vector<double>&all = state.history.series("loss"), &epochs = state.history.series("epoch");
  for (std::size_t i = 0; i < all.size(); ++i)
    if (epochs.empty() || epochs[i] == std::floor(epochs[i])) losses.push_back(all[i]);
  const auto loss = [&](std::int64_t k) { return losses[k * kEvery - 1]; };  // k from 1
  std::int64_t count = 0;
  for (std::int64_t k = 3; k * kEvery <= std::ssize(losses); ++k) {
    const double change = (loss(k) - loss(k - 2)) / loss(k - 2);
    count = change > 0 || std::abs(change) < kChange ? count + 1 : 0;
  }
  if (count < kPatience) return "";
  return "the training loss no longer falls (stop.rule = train_loss)";
}

void note_score(TrainState& state, double value, bool larger_is_better, double least) {
  const double gain = larger_is_better ? value - state.stop_best : state.stop_best - value;
  if (std::isfinite(value) && (!state.scored || gain > least)) {
    state.stop_best = value;
    state.scored = true;
    state.since_best = 0;
  } else {
    ++state.since_best;
  }
}

std::string stop_reason(const RunConfig::Stop& rules, const TrainState& state) {
  if (rules.rule != "val") return "";
  if (rules.patience > 0 && state.since_best >= rules.patience)
    return join("no improvement in ", state.since_best, " evaluations (stop.patience)");
  if (rules.tolerance > 0 && state.epoch >= rules.min_epochs) {
    const double change = spread(state.history.known(kValidationLoss), rules.window);
    if (change < rules.tolerance)
      return join("the validation loss changed by a fraction of ", change, " in ", rules.window,
                  " evaluations (stop.tolerance)");
  }
  if (rules.jacobian_tolerance > 0 && state.epoch >= rules.jacobian_min_epochs) {
    std::vector<double> values = state.history.known(kMeanAbsGradient);
    if (values.empty()) values = state.history.known(kFrobeniusNorm);
    const double change = spread(values, rules.jacobian_window);
    if (change < rules.jacobian_tolerance)
      return join("the sensitivities changed by a fraction of ", change, " in ", rules.jacobian_window,
                  " computations (stop.jacobian_tolerance)");
  }
  return "";
}

std::string all_done(std::int64_t steps) { return join("all ", steps, " steps are done"); }

bool too_late(double used_s, double limit_s, double slowest_checkpoint_s, double work_s) {
  const double checkpoint_s = slowest_checkpoint_s > 0 ? 2 * slowest_checkpoint_s : limit_s / 20;
  return limit_s > 0 && used_s > std::max(limit_s - checkpoint_s - work_s, limit_s / 2);
}

}  // namespace lockstep
