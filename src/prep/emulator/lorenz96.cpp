#include "lockstep/prep/emulator/lorenz96.hpp"

#include <array>

namespace lockstep::prep {

namespace {
/// Indices on a ring of n.
struct Ring {
  std::size_t n;
  std::size_t up(std::size_t i, std::size_t by) const { return (i + by) % n; }
  std::size_t down(std::size_t i, std::size_t by) const { return (i + n - by) % n; }
};
}  // namespace

void Lorenz96::tendency(std::span<const double> x, std::span<double> out) const {
  const Ring ring{n};
  for (std::size_t k = 0; k < n; ++k)
    out[k] = (x[ring.up(k, 1)] - x[ring.down(k, 2)]) * x[ring.down(k, 1)] - x[k] + forcing;
}

void Lorenz96::tangent(std::span<const double> x, std::span<const double> dx, std::span<double> out) const {
  const Ring ring{n};
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t next = ring.up(k, 1), last = ring.down(k, 1), before = ring.down(k, 2);
    out[k] = (dx[next] - dx[before]) * x[last] + (x[next] - x[before]) * dx[last] - dx[k];
  }
}

void TwoScaleLorenz96::tendency(std::span<const double> x, std::span<double> out) const {
  const Ring ring{slow}, fast_ring{slow * fast};
  const double coupling = h * c / b;
  const auto y = x.subspan(slow);
  for (std::size_t k = 0; k < slow; ++k)
    out[k] = -x[ring.down(k, 1)] * (x[ring.down(k, 2)] - x[ring.up(k, 1)]) - x[k] + forcing + forcing_of_fast(x, k);
  for (std::size_t m = 0; m < fast_ring.n; ++m)
    out[slow + m] = -c * b * y[fast_ring.up(m, 1)] * (y[fast_ring.up(m, 2)] - y[fast_ring.down(m, 1)]) - c * y[m] +
                    coupling * x[m / fast];
}

double TwoScaleLorenz96::forcing_of_fast(std::span<const double> x, std::size_t k) const {
  double sum = 0;
  for (std::size_t j = 0; j < fast; ++j) sum += x[slow + k * fast + j];
  return -(h * c / b) * sum;
}

void TwoScaleLorenz96::tangent(std::span<const double> x, std::span<const double> dx, std::span<double> out) const {
  const Ring ring{slow}, fast_ring{slow * fast};
  const double coupling = h * c / b;
  const auto y = x.subspan(slow), dy = dx.subspan(slow);
  for (std::size_t k = 0; k < slow; ++k) {
    const std::size_t next = ring.up(k, 1), last = ring.down(k, 1), before = ring.down(k, 2);
    out[k] = -dx[last] * (x[before] - x[next]) - x[last] * (dx[before] - dx[next]) - dx[k] + forcing_of_fast(dx, k);
  }
  for (std::size_t m = 0; m < fast_ring.n; ++m) {
    const std::size_t next = fast_ring.up(m, 1), second = fast_ring.up(m, 2), last = fast_ring.down(m, 1);
    out[slow + m] = -c * b * (dy[next] * (y[second] - y[last]) + y[next] * (dy[second] - dy[last])) - c * dy[m] +
                    coupling * dx[m / fast];
  }
}

namespace {
/// The classical scheme: stage s is at x + dt a_s k_{s-1}, and the step adds dt b_s k_s.
constexpr std::array<double, 4> kA = {0, 0.5, 0.5, 1}, kB = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6};
using Stages = std::array<std::vector<double>, 4>;

/// Computes the states of the four stages and their tendencies.
void run_stages(const auto& model, double dt, std::span<const double> x, Stages& at, Stages& k) {
  for (std::size_t s = 0; s < 4; ++s) {
    at[s].assign(x.begin(), x.end());
    if (s > 0)
      for (std::size_t i = 0; i < x.size(); ++i) at[s][i] += dt * kA[s] * k[s - 1][i];
    k[s].resize(x.size());
    model.tendency(at[s], k[s]);
  }
}
}  // namespace

template <class Model>
void rk4_step(const Model& model, double dt, std::span<double> x) {
  Stages at, k;
  run_stages(model, dt, x, at, k);
  for (std::size_t i = 0; i < x.size(); ++i) {
    double sum = 0;
    for (std::size_t s = 0; s < 4; ++s) sum += kB[s] * k[s][i];
    x[i] += dt * sum;
  }
}

template <class Model>
std::vector<double> rk4_tangent(const Model& model, double dt, std::span<const double> x, std::span<const double> dx) {
  Stages at, k, dk;
  run_stages(model, dt, x, at, k);
  std::vector<double> d(x.size()), out(dx.begin(), dx.end());
  for (std::size_t s = 0; s < 4; ++s) {
    for (std::size_t i = 0; i < x.size(); ++i) d[i] = dx[i] + (s > 0 ? dt * kA[s] * dk[s - 1][i] : 0);
    dk[s].resize(x.size());
    model.tangent(at[s], d, dk[s]);
    for (std::size_t i = 0; i < x.size(); ++i) out[i] += dt * kB[s] * dk[s][i];
  }
  return out;
}

template void rk4_step(const Lorenz96&, double, std::span<double>);
template void rk4_step(const TwoScaleLorenz96&, double, std::span<double>);
template std::vector<double> rk4_tangent(const Lorenz96&, double, std::span<const double>, std::span<const double>);
template std::vector<double> rk4_tangent(const TwoScaleLorenz96&, double, std::span<const double>,
                                         std::span<const double>);

}  // namespace lockstep::prep
