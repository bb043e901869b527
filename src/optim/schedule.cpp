#include "lockstep/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.hpp"

namespace lockstep {

LrSchedule::LrSchedule(const ScheduleOptions& options, double base_lr) : options_(options), base_(base_lr) {
  const std::string& name = options.name;
  require_usage(name == "constant" || name == "step" || name == "cosine" || name == "exponential" || name == "plateau",
                "option schedule.name = ", name, ": must be constant, step, cosine, exponential or plateau");
  require_usage(options.unit == "epoch" || options.unit == "step", "option schedule.unit = ", options.unit,
                ": must be epoch or step");
  require_usage(options.warmup >= 0, "option schedule.warmup = ", options.warmup, ": must be >= 0");
  require_usage(options.step_size > 0, "option schedule.step_size = ", options.step_size, ": must be > 0");
  if (name == "cosine") {
    require_usage(options.total > options.warmup, "a cosine schedule of ", options.total, " ", options.unit,
                  "s with a warm-up of ", options.warmup, ": the run must be longer than its warm-up");
    const double floor = options.min_lr + options.min_ratio * base_lr;
    require_usage(floor <= base_lr, "a cosine schedule would rise from the learning rate ", base_lr, " to ", floor,
                  ": lower schedule.min_lr = ", options.min_lr, " or schedule.min_ratio = ", options.min_ratio,
                  ", whose sum is the lowest rate, or raise optim.lr");
  }
}

double LrSchedule::lr(std::int64_t completed_steps, std::int64_t completed_epochs) const {
  const std::int64_t completed = options_.unit == "step" ? completed_steps : completed_epochs;
  if (options_.late && completed == 0) return base_;
  const std::int64_t n = options_.late ? completed : completed + 1;
  if (n <= options_.warmup) return base_ * static_cast<double>(n) / static_cast<double>(options_.warmup);
  const std::int64_t j = n - 1 - options_.warmup + options_.origin;
  if (options_.name == "step") return base_ * std::pow(options_.gamma, static_cast<double>(j / options_.step_size));
  if (options_.name == "exponential") {
    return base_ * std::pow(options_.gamma, static_cast<double>(j) / static_cast<double>(options_.step_size));
  }
  if (options_.name == "cosine") {
    const double floor = options_.min_lr + options_.min_ratio * base_;
    const double progress = static_cast<double>(j) / static_cast<double>(options_.total - options_.warmup);
    return floor + (base_ - floor) * 0.5 * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
  }
  if (options_.name == "plateau") return base_ * std::pow(options_.factor, static_cast<double>(state_.drops));
  return base_;
}

void LrSchedule::observe(double value) {
  if (options_.name != "plateau") return;
  // A negative value is a metric that should grow (Trainer); the improvement is relative to its size, too.
  const double target = state_.best * (state_.best < 0 ? 1 + options_.threshold : 1 - options_.threshold);
  if (value < target) {
    state_.best = value;
    state_.bad = 0;
  } else if (++state_.bad > options_.patience) {
    ++state_.drops;
    state_.bad = 0;
  }
}

}  // namespace lockstep
