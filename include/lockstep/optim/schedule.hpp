#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace lockstep {

struct ScheduleOptions {
  std::string name = "constant";  ///< constant | step | cosine | exponential | plateau
  std::string unit = "epoch";     ///< epoch | step: what the schedule counts
  std::int64_t warmup = 0;        ///< units of linear warm-up: unit n = 1..warmup runs at base * n / warmup
  std::int64_t total = 0;         ///< units of the whole run: cosine ends there
  int origin =
      0;  ///< index of the first unit after the warm-up: 0 (PyTorch), 1 when the warm-up's last unit counts as index 0
  bool late = false;  ///< every unit runs at its predecessor's rate, the first one at base (stepping after the unit)
  std::int64_t step_size = 30;  ///< step: units between two drops;  exponential: units per factor gamma
  double gamma = 0.1;           ///< step, exponential
  double min_lr = 0;            ///< cosine: floor, absolute
  double min_ratio = 0;         ///< cosine: floor, as a part of base; the two add up
  double factor = 0.5;          ///< plateau: multiplies the rate
  std::int64_t patience = 10;   ///< plateau: evaluations without improvement that are forgiven
  double threshold = 1e-4;      ///< plateau: better means below best * (1 - threshold)
};

/// The learning rate as a function of how many units (epochs or steps) have been completed.
///
/// With W = warmup, n = completed + 1, j = n - 1 - W + origin:
///   n <= W       base * n / W
///   constant     base
///   step         base * gamma^floor(j / step_size)
///   exponential  base * gamma^(j / step_size)
///   cosine       f + (base - f) (1 + cos(pi min(j / (total - W), 1))) / 2,   f = min_lr + min_ratio * base
///   plateau      base * factor^(number of times that more than `patience` evaluations in a row were no better)
///
/// source  PyTorch 1.13 lr_scheduler (StepLR, CosineAnnealingLR, ReduceLROnPlateau in mode min, rel); for warm-up see
/// docs/training.md
class LrSchedule {
 public:
  /// errors  Error (usage): unknown name or unit; cosine without a total beyond the warm-up
  LrSchedule(const ScheduleOptions& options, double base_lr);
  double lr(std::int64_t completed_steps, std::int64_t completed_epochs) const;
  /// A validation loss, once per evaluation; only plateau listens.
  void observe(double validation_loss);

  /// What a checkpoint keeps.
  struct State {
    double best = std::numeric_limits<double>::infinity();
    std::int64_t bad = 0;    ///< evaluations in a row without improvement
    std::int64_t drops = 0;  ///< reductions so far
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  ScheduleOptions options_;
  double base_;
  State state_;
};

}  // namespace lockstep
