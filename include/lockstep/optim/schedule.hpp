#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace lockstep {

struct ScheduleOptions {
  std::string name = "constant";  ///< constant | step | cosine | exponential | plateau
  std::string unit = "epoch";     ///< epoch | step: what the schedule counts
  std::int64_t warmup = 0;        ///< units of linear warm-up: unit n = 1..warmup runs at base * n / warmup
  std::int64_t total = 0;         ///< units of the whole run, where cosine ends
  int origin = 0;                 ///< index after warm-up: 0 (PyTorch), or 1 if the last warm-up unit has index 0
  bool late = false;              ///< each unit uses the rate of the previous one, the first uses base
  std::int64_t step_size = 30;    ///< step: units between two drops;  exponential: units per factor gamma
  double gamma = 0.1;             ///< step, exponential
  double min_lr = 0;              ///< cosine: floor, absolute
  double min_ratio = 0;           ///< cosine: floor, as a fraction of base; added to min_lr
  double factor = 0.5;            ///< plateau: factor of each reduction
  std::int64_t patience = 10;     ///< plateau: tolerated evaluations without improvement
  double threshold = 1e-4;        ///< plateau: an improvement is below best * (1 - threshold)
};

/// The learning rate as a function of the number of completed units (epochs or steps).
///
/// With W = warmup, n = completed + 1, j = n - 1 - W + origin:
///   n <= W       base * n / W
///   constant     base
///   step         base * gamma^floor(j / step_size)
///   exponential  base * gamma^(j / step_size)
///   cosine       f + (base - f) (1 + cos(pi min(j / (total - W), 1))) / 2,   f = min_lr + min_ratio * base
///   plateau      base * factor^(number of runs of more than `patience` evaluations without improvement)
///
/// source   PyTorch 1.13 lr_scheduler (StepLR, CosineAnnealingLR, ReduceLROnPlateau in mode min, rel); for warm-up see
///          docs/training.md
class LrSchedule {
 public:
  /// errors   Error (usage): unknown name or unit; warmup < 0; step_size <= 0; cosine with total <= warmup
  LrSchedule(const ScheduleOptions& options, double base_lr);
  double lr(std::int64_t completed_steps, std::int64_t completed_epochs) const;
  /// Records a validation loss, or minus a metric that should grow. Call once per evaluation; only plateau uses it.
  void observe(double value);

  /// The state that a checkpoint stores.
  struct State {
    double best = std::numeric_limits<double>::infinity();
    std::int64_t bad = 0;    ///< consecutive evaluations without improvement
    std::int64_t drops = 0;  ///< reductions so far
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  std::int64_t total() const { return options_.total; }
  void set_state(const State& state) { state_ = state; }

 private:
  ScheduleOptions options_;
  double base_;
  State state_;
};

}  // namespace lockstep
