#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep {

/// Dynamic loss scale of fp16 training. fp16 reaches from 65504 down to 6e-8, with fewer digits below 6e-5. The loss is
/// multiplied by a power of two, as large as possible, and the f32 gradients of parameters are divided by it, which is
/// exact. If a gradient is not finite the scale is too large: the step changes no weights.
///
/// source  Micikevicius et al. 2018, arXiv:1710.03740, sec. 3.2; the constants are those of PyTorch
struct LossScale {
  double value = 65536;    ///< factor of the mean loss of a step
  std::int64_t steps = 0;  ///< with a finite gradient since `value` last changed

  /// The factor of the *sum* of the losses of so many samples, also a power of two.
  constexpr double of_sum(std::int64_t samples) const {
    return value / static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(samples, 1))));
  }
  /// Whether a smaller scale may help. If not, the scale is not the cause of the overflow.
  constexpr bool can_fall() const { return value > 1; }
  /// After each step: halves the scale if the gradient was not finite, doubles it after 2000 finite steps.
  constexpr void update(bool finite) {
    constexpr std::int64_t kGrowthInterval = 2000;
    ++steps;
    if (finite && steps < kGrowthInterval) return;
    value *= finite ? 2 : 0.5;
    steps = 0;
  }
};

}  // namespace lockstep
