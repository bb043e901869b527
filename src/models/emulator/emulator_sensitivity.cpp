#include "lockstep/models/emulator/emulator_sensitivity.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/models/emulator/emulator_operators.hpp"

namespace lockstep {
namespace {

/// Singular values of a (rows, columns), largest first. Plane rotations make the columns orthogonal, so that small
/// singular values keep their relative accuracy.
/// source  one-sided Jacobi: Hestenes 1958; Golub, Van Loan, Matrix Computations, 8.6.3
std::vector<double> singular_values(std::int64_t rows, std::int64_t columns, std::vector<double> a) {
  if (columns > rows) {
    std::vector<double> transposed(a.size());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) transposed[c * rows + r] = a[r * columns + c];
    return singular_values(columns, rows, std::move(transposed));
  }
  const auto at = [&](std::int64_t r, std::int64_t c) -> double& { return a[r * columns + c]; };
  const auto dot = [&](std::int64_t p, std::int64_t q) {
    double sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += at(r, p) * at(r, q);
    return sum;
  };
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < 60; ++sweep) {
    rotated = false;
    for (std::int64_t p = 0; p < columns; ++p)
      for (std::int64_t q = p + 1; q < columns; ++q) {
        const double pp = dot(p, p), qq = dot(q, q), pq = dot(p, q);
        if (std::abs(pq) <= 1e-15 * std::sqrt(pp * qq)) continue;
        rotated = true;
        const double zeta = (qq - pp) / (2 * pq),
                     t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
        const double cosine = 1 / std::hypot(1.0, t), sine = cosine * t;
        for (std::int64_t r = 0; r < rows; ++r) {
          const double x = at(r, p), y = at(r, q);
          at(r, p) = cosine * x - sine * y;
          at(r, q) = sine * x + cosine * y;
        }
      }
  }
  std::vector<double> values;
  for (std::int64_t c = 0; c < columns; ++c) values.push_back(std::sqrt(dot(c, c)));
  std::sort(values.rbegin(), values.rend());
  return values;
}

}  // namespace

SensitivityMetrics sensitivity_metrics(const Emulator& emulator, std::int64_t rows, const float* x) {
  const std::int64_t in = emulator.arch().n_in, out = emulator.arch().n_out;
  SensitivityMetrics m;
  m.rows.assign(rows * in, 0);
  visit_float(emulator.dtype(), [&]<class T>() {
    const std::vector<T> states(x, x + rows * in);
    std::vector<T> jacobian(rows * out * in);
    EmulatorOperators<T>(emulator).template jacobian<T>(rows, {states.data(), in, 1}, {}, JacobianUnits::normalised,
                                                        jacobian.data());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i)
          m.rows[r * in + i] += static_cast<double>(jacobian[(r * out + o) * in + i]);
  });
  if (rows == 0) return m;
  if (!std::ranges::all_of(m.rows, [](double value) { return std::isfinite(value); })) {
    m.frobenius_norm = m.mean_abs_gradient = m.spectral_norm = m.stability = m.max_gradient = m.gradient_std =
        m.max_sensitivity = std::numeric_limits<double>::quiet_NaN();
    m.feature_sensitivity.assign(in, m.max_sensitivity);
    return m;
  }
  const double n = static_cast<double>(m.rows.size());
  double sum = 0, squares = 0;
  m.feature_sensitivity.assign(in, 0);
  for (std::size_t k = 0; k < m.rows.size(); ++k) {
    const double value = m.rows[k];
    sum += value;
    squares += value * value;
    m.mean_abs_gradient += std::abs(value) / n;
    m.max_gradient = std::max(m.max_gradient, std::abs(value));
    m.feature_sensitivity[k % static_cast<std::size_t>(in)] += std::abs(value) / static_cast<double>(rows);
  }
  m.frobenius_norm = std::sqrt(squares);
  double deviation = 0;
  for (const double value : m.rows) deviation += (value - sum / n) * (value - sum / n);
  m.gradient_std = std::sqrt(deviation / n);
  const std::vector<double> s = singular_values(rows, in, m.rows);
  m.spectral_norm = s.front();
  m.stability = s.back() > 1e-12 ? s.front() / s.back() : 1e6;
  const auto most = std::max_element(m.feature_sensitivity.begin(), m.feature_sensitivity.end());
  m.most_sensitive_feature = most - m.feature_sensitivity.begin();
  m.max_sensitivity = *most;
  return m;
}

}  // namespace lockstep
