#include "lockstep/prep/har/har_signal.hpp"

#include <algorithm>

namespace lockstep::prep {

std::vector<double> median3(std::span<const double> x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = i > 0 ? x[i - 1] : 0, after = i + 1 < x.size() ? x[i + 1] : 0;
    y[i] = std::max(std::min(before, after), std::min(std::max(before, after), x[i]));
  }
  return y;
}

std::vector<double> filter3(const Filter3& f, std::span<const double> x) {
  if (x.empty()) return {};
  // Steady state for x = 1: z_0 = sum(B) / sum(a), B_k = b_k - a_k b_0; the others follow.
  const auto& [b, a] = f;
  double sum_b = 0, sum_a = a[0];
  for (std::size_t k = 1; k < 4; ++k) sum_b += b[k] - a[k] * b[0], sum_a += a[k];
  std::array<double, 3> z{};
  z[0] = sum_b / sum_a;
  double partial_a = 1, partial_b = 0;
  for (std::size_t k = 1; k < 3; ++k) {
    partial_a += a[k];
    partial_b += b[k] - a[k] * b[0];
    z[k] = partial_a * z[0] - partial_b;
  }
  for (double& state : z) state *= x[0];
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = b[0] * x[i] + z[0];
    z[0] = b[1] * x[i] + z[1] - a[1] * y[i];
    z[1] = b[2] * x[i] + z[2] - a[2] * y[i];
    z[2] = b[3] * x[i] - a[3] * y[i];
  }
  return y;
}

SplitSignal split_signal(std::span<const double> raw) {
  SplitSignal out;
  out.total = filter3(kLowPass20Hz, median3(raw));
  out.body = filter3(kLowPass03Hz, out.total);
  for (std::size_t i = 0; i < out.body.size(); ++i) out.body[i] = out.total[i] - out.body[i];
  return out;
}

}  // namespace lockstep::prep
