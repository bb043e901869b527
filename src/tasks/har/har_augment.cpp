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

/// Copies the window, shifted by a random number of samples, at most to the beginning of the following window.
void take(const HarAugment& augment, const HarData& data, std::int64_t window, const Philox& draws, double* out) {
  const std::int64_t channels = data.channels(), length = data.length();
  const std::int32_t* following = data.following.data<std::int32_t>() + 2 * window;
  std::int64_t later = 0;
  if (augment.shift && following[0] >= 0)
    later = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(following[1]) + 1, kShift));
  const double* x = data.window(window);
  for (std::int64_t c = 0; c < channels; ++c) {
    std::copy_n(x + c * length + later, length - later, out + c * length);
    if (later == 0) continue;
    // The following window begins following[1] samples later, so its samples from length - following[1] on are new.
    const double* next = data.window(following[0]) + c * length;
    std::copy_n(next + length - following[1], later, out + c * length + length - later);
  }
}

}  // namespace

std::vector<std::int32_t> triads_of(const std::vector<std::string>& names) {
  std::vector<std::int32_t> triads;
  for (std::size_t c = 0; c + 2 < names.size(); ++c) {
    if (!names[c].ends_with("_x")) continue;
    const std::string stem = names[c].substr(0, names[c].size() - 1);
    if (names[c + 1] == stem + "y" && names[c + 2] == stem + "z") triads.push_back(static_cast<std::int32_t>(c));
  }
  return triads;
}

bool augments_signals(const HarAugment& augment) { return augment.shift || augment.turn > 0 || augment.stretch > 0; }

void augment_window(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                    std::int64_t window, const Philox& draws, double* out) {
  const std::int64_t channels = data.channels(), length = data.length();
  take(augment, data, window, draws, out);
  if (augment.turn > 0) {
    const Matrix m = random_turn(draws, augment.turn);
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
  if (augment.stretch > 0) {
    std::int64_t group = 0;
    for (std::int64_t c = 0; c < channels; ++group) {
      const bool triad = std::find(triads.begin(), triads.end(), c) != triads.end();
      const double factor = 1 + augment.stretch * draws.normal(kStretch + static_cast<std::uint64_t>(group));
      const std::int64_t end = c + (triad ? 3 : 1);
      for (double *x = out + c * length, *last = out + end * length; x < last; ++x) *x *= factor;
      c = end;
    }
  }
}

}  // namespace lockstep
