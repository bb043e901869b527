#include "tasks/har/har_augment.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace lockstep {

namespace {

/// Indices of a window's draws.
enum Draw : std::uint64_t { kShift = 0, kAxis = 16, kAngle = 24, kStretch = 32 };

using Matrix = std::array<double, 9>;

/// Rotation by `angle` (radians) about an axis of unit length. source  Rodrigues' formula
Matrix turn_about(const std::array<double, 3>& axis, double angle) {
  const double c = std::cos(angle), s = std::sin(angle), d = 1 - c;
  const auto [x, y, z] = axis;
  return {c + x * x * d,     x * y * d - z * s, x * z * d + y * s, y * x * d + z * s, c + y * y * d,
          y * z * d - x * s, z * x * d - y * s, z * y * d + x * s, c + z * z * d};
}

Matrix random_turn(const Philox& draws, double degrees) {
  std::array<double, 3> axis = {draws.normal(kAxis), draws.normal(kAxis + 1), draws.normal(kAxis + 2)};
  const double size = std::sqrt(axis[0] * axis[0] + axis[1] * axis[1] + axis[2] * axis[2]);
  if (size == 0) return turn_about({0, 0, 1}, 0);
  for (double& a : axis) a /= size;
  return turn_about(axis, draws.normal(kAngle) * degrees * std::numbers::pi / 180);
}

/// Copies a window, with a shifted start.
void take(const HarData& data, const ops::WindowPick& pick, double* out) {
  const std::int64_t channels = data.channels(), length = data.length(), later = pick.later;
  const double* x = data.window(pick.window);
  for (std::int64_t c = 0; c < channels; ++c) {
    std::copy_n(x + c * length + later, length - later, out + c * length);
    if (later == 0) continue;
    const double* next = data.window(pick.next) + c * length;  // its samples from length - ahead on are new
    std::copy_n(next + length - pick.ahead, later, out + c * length + length - later);
  }
}

}  // namespace

std::vector<std::int32_t> triads_of(const std::vector<std::string>& names) {
  std::vector<std::int32_t> triads;
  for (std::size_t c = 0; c + 2 < names.size(); ++c) {
    if (!names[c].ends_with('x') && !names[c].ends_with('X')) continue;
    const std::string stem = names[c].substr(0, names[c].size() - 1);
    const char x = names[c].back();
    if (names[c + 1] == stem + static_cast<char>(x + 1) && names[c + 2] == stem + static_cast<char>(x + 2))
      triads.push_back(static_cast<std::int32_t>(c));
  }
  return triads;
}

bool augments_signals(const HarAugment& augment) { return augment.shift || augment.turn > 0 || augment.stretch > 0; }

ops::WindowPick draw_change(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                            std::int64_t window, const Philox& draws, std::span<double> factors) {
  ops::WindowPick pick{.window = window};
  // A shift ends at the latest at the beginning of the following window.
  const std::int32_t* following = data.following.data<std::int32_t>() + 2 * window;
  if (augment.shift && following[0] >= 0) {
    pick.later = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(following[1]) + 1, kShift));
    pick.next = following[0], pick.ahead = following[1];
  }
  if (augment.turn > 0) pick.turn = random_turn(draws, augment.turn);
  std::ranges::fill(factors, 1.0);
  if (augment.stretch > 0) {
    std::uint64_t group = 0;
    for (std::size_t c = 0; c < factors.size(); ++group) {
      const bool triad = std::ranges::find(triads, static_cast<std::int32_t>(c)) != triads.end();
      const double factor = 1 + augment.stretch * draws.normal(kStretch + group);
      for (const std::size_t end = c + (triad ? 3 : 1); c < end; ++c) factors[c] = factor;
    }
  }
  return pick;
}

void augment_window(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                    std::int64_t window, const Philox& draws, std::span<double> factors, double* out) {
  const std::int64_t length = data.length();
  const ops::WindowPick pick = draw_change(augment, data, triads, window, draws, factors);
  take(data, pick, out);
  if (augment.turn > 0) {
    const std::array<double, 9>& m = pick.turn;
    for (const std::int32_t first : triads) {
      double *x = out + first * length, *y = x + length, *z = y + length;
      for (std::int64_t t = 0; t < length; ++t) {
        const double a = x[t], b = y[t], c = z[t];
        x[t] = m[0] * a + m[1] * b + m[2] * c;
        y[t] = m[3] * a + m[4] * b + m[5] * c;
        z[t] = m[6] * a + m[7] * b + m[8] * c;
      }
    }
  }
  if (augment.stretch > 0)
    for (const double factor : factors)
      for (double* const end = out + length; out < end; ++out) *out *= factor;
}

}  // namespace lockstep
