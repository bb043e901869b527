#include "tasks/emulator/affine_guess.hpp"

#include <algorithm>

namespace lockstep {

namespace {

constexpr std::int64_t kMostRows = 100'000, kFetched = 8192;
constexpr double kRidge = 1e-6;

void normalise(std::span<const float> x, const std::vector<double>& mean, const std::vector<double>& std, double* to) {
  for (std::size_t c = 0; c < x.size(); ++c) to[c] = (static_cast<double>(x[c]) - mean[c]) / std[c];
}

/// Solves A X = B by A = L D L' and stores X in B. A (n, n) is symmetric and positive semidefinite; only its lower half
/// is used. B (n, m). A pivot that rounding makes smaller than the ridge counts as the ridge.
void solve(std::vector<double>& a, std::vector<double>& b, std::size_t n, std::size_t m) {
  std::vector<double> pivot(n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k] * pivot[k];
      if (i == j) {
        pivot[i] = std::max(sum, kRidge);
      } else {
        a[i * n + j] = sum / pivot[j];
      }
    }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < i; ++k)
      for (std::size_t c = 0; c < m; ++c) b[i * m + c] -= a[i * n + k] * b[k * m + c];
  for (std::size_t i = n; i-- > 0;)
    for (std::size_t c = 0; c < m; ++c) {
      double sum = b[i * m + c] / pivot[i];
      for (std::size_t k = i + 1; k < n; ++k) sum -= a[k * n + i] * b[k * m + c];
      b[i * m + c] = sum;
    }
}

}  // namespace

void AffineGuess::predict(const Moments& moments, std::span<const float> x, std::span<double> t) const {
  std::ranges::copy(bias, t.begin());
  const std::size_t in = x.size();
  for (std::size_t i = 0; i < in; ++i) {
    const double z = (static_cast<double>(x[i]) - moments.input_mean[i]) / moments.input_std[i];
    for (std::size_t o = 0; o < t.size(); ++o) t[o] += weights[o * in + i] * z;
  }
}

AffineGuess persistence(const EmulatorData& data, bool& found) {
  const auto in = static_cast<std::size_t>(data.n_in()), out = static_cast<std::size_t>(data.n_out());
  const EmulatorVariables& vars = data.variables;
  const Moments& m = data.moments;
  AffineGuess guess{std::vector<double>(out * in), std::vector<double>(out)};
  found = false;
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t i = 0; i < in; ++i) {
      if (vars.input_names[i] != vars.output_names[o] || vars.input_level[i] != vars.output_level[o]) continue;
      guess.weights[o * in + i] = m.input_std[i] / m.output_std[o];
      guess.bias[o] = (m.input_mean[i] - m.output_mean[o]) / m.output_std[o];
      found = true;
      break;
    }
  return guess;
}

AffineGuess linear_regression(const EmulatorData& data) {
  const auto in = static_cast<std::size_t>(data.n_in()), out = static_cast<std::size_t>(data.n_out()), n = in + 1;
  const std::int64_t all = data.count[0], used = std::min(all, kMostRows);
  const auto row_of = [&](std::int64_t r) { return data.row_of(Split::train, all * r / used); };
  const Moments& m = data.moments;
  std::vector<double> a(n * n), b(n * out), z(n, 1), t(out);  // the last of z stays 1, for the bias
  for (std::int64_t r = 0; r < used; ++r) {
    if (r % kFetched == 0 && !data.x.whole()) {
      std::vector<std::int64_t> rows;
      for (std::int64_t i = r; i < std::min(used, r + kFetched); ++i) rows.push_back(row_of(i));
      data.x.fetch(std::move(rows));
    }
    normalise({data.x.row<float>(row_of(r)), in}, m.input_mean, m.input_std, z.data());
    normalise({data.y.row<float>(row_of(r)), out}, m.output_mean, m.output_std, t.data());
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) a[i * n + j] += z[i] * z[j];
      for (std::size_t o = 0; o < out; ++o) b[i * out + o] += z[i] * t[o];
    }
  }
  for (double& x : a) x /= static_cast<double>(used);
  for (double& x : b) x /= static_cast<double>(used);
  for (std::size_t i = 0; i < in; ++i) a[i * n + i] += kRidge;
  solve(a, b, n, out);
  AffineGuess guess{std::vector<double>(out * in), std::vector<double>(out)};
  for (std::size_t o = 0; o < out; ++o) {
    for (std::size_t i = 0; i < in; ++i) guess.weights[o * in + i] = b[i * out + o];
    guess.bias[o] = b[in * out + o];
  }
  return guess;
}

}  // namespace lockstep
