#include "lockstep/base/quantile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace lockstep {

double erf_inverse(double y) {
  if (std::abs(y) >= 1) return std::copysign(std::numeric_limits<double>::infinity(), y);
  // Winitzki's approximation is within 2e-3; each Halley step triples the digits.
  const double log_rest = std::log1p(-y * y), a = 2 / (std::numbers::pi * 0.147) + log_rest / 2;
  double x = std::copysign(std::sqrt(std::sqrt(a * a - log_rest / 0.147) - a), y);
  for (int i = 0; i < 3; ++i) {
    // For large |x|, erf(x) is nearly 1. Subtracting complements avoids the cancellation.
    const double error = y > 0 ? (1 - y) - std::erfc(x) : std::erfc(-x) - (1 + y);
    const double step = error * -0.5 * std::sqrt(std::numbers::pi) * std::exp(x * x);
    x += step / (1 + x * step);
  }
  return x;
}

double truncated_normal(double u, double std) {
  constexpr double kCut = 2;
  const double mass = std::erf(kCut / std::numbers::sqrt2);
  const double density = std::exp(-kCut * kCut / 2) / std::sqrt(2 * std::numbers::pi);
  const double scale = std / std::sqrt(1 - 2 * kCut * density / mass);  // 0.8796... times scale is std
  const double x = std::numbers::sqrt2 * scale * erf_inverse(mass * (2 * u - 1));
  return std::clamp(x, -kCut * scale, kCut * scale);
}

}  // namespace lockstep
