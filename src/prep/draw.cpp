#include "lockstep/prep/draw.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::prep {

namespace {
/// The first `count` elements of a Fisher-Yates shuffle.
std::vector<std::int64_t> shuffled(std::int64_t n, std::int64_t count, std::uint64_t seed, Site site) {
  require(count >= 0 && count <= n, "drawing ", count, " of ", n);
  auto order = consecutive<std::int64_t>(n);
  const Philox random(seed, 0, site);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto j =
        i + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n - i), static_cast<std::uint64_t>(i)));
    std::swap(order[i], order[j]);
  }
  order.resize(count);
  return order;
}
}  // namespace

std::vector<std::int64_t> draw_subset(std::int64_t n, std::int64_t count, std::uint64_t seed, Site site) {
  auto chosen = shuffled(n, count, seed, site);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<std::int64_t> draw_permutation(std::int64_t n, std::uint64_t seed, Site site) {
  return shuffled(n, n, seed, site);
}

double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double Draws::gamma(double shape, double scale) {
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    if (v <= 0) continue;
    if (std::log1p(-uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

}  // namespace lockstep::prep
