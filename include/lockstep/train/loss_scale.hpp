#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep {

/// Keeps gradients within the range of fp16, which ends at 65504 and, with fewer and fewer digits, at 6e-8: the loss is
/// multiplied by a power of two, as large as can be, and the f32 gradients of parameters are divided by it, which is exact.
/// A step whose gradient is not finite has shown the factor to be too large: it changes no weights.
///
/// source  Micikevicius et al. 2018, arXiv:1710.03740, sec. 3.2; the constants are PyTorch's
struct LossScale {
  double value = 65536;    ///< what the mean loss of a step is multiplied by
  std::int64_t steps = 0;  ///< with a finite gradient since it last changed

  /// The factor of the *sum* of the losses of so many samples: a power of two, too.
  double of_sum(std::int64_t samples) const {
    return value / static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(samples, 1))));
  }
  /// Whether a smaller one may help. If not, it is not the factor that is to blame.
  bool can_fall() const { return value > 1; }
  /// After a step: half of it, or twice when all has gone well for long.
  void update(bool finite) {
    constexpr std::int64_t kLong = 2000;
    ++steps;
    if (finite && steps < kLong) return;
    value *= finite ? 2 : 0.5;
    steps = 0;
  }
};

}  // namespace lockstep
