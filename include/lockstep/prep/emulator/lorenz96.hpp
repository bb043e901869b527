#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::prep {

/// dx_k/dt = (x_{k+1} - x_{k-2}) x_{k-1} - x_k + F on a ring. source  Lorenz 1996, "Predictability: a problem partly
/// solved"
struct Lorenz96 {
  std::size_t n = 40;
  double forcing = 8;
  std::size_t size() const { return n; }
  void tendency(std::span<const double> x, std::span<double> out) const;
  /// out = J(x) dx
  void tangent(std::span<const double> x, std::span<const double> dx, std::span<double> out) const;
};

/// The model with K slow and K*J fast variables. The state is [X, Y]; Y is one ring; its entries kJ .. kJ+J-1 belong to
/// slow variable k.
///
///   dX_k/dt = -X_{k-1} (X_{k-2} - X_{k+1}) - X_k + F - (h c / b) sum_j Y_{j,k}
///   dY_m/dt = -c b Y_{m+1} (Y_{m+2} - Y_{m-1}) - c Y_m + (h c / b) X_{m / J}
struct TwoScaleLorenz96 {
  std::size_t slow = 8, fast = 32;
  double forcing = 20, h = 1, b = 10, c = 10;
  std::size_t size() const { return slow + slow * fast; }
  void tendency(std::span<const double> x, std::span<double> out) const;
  void tangent(std::span<const double> x, std::span<const double> dx, std::span<double> out) const;
  /// U_k = -(h c / b) sum_j Y_{j,k}: the effect of the fast variables on slow variable k.
  double forcing_of_fast(std::span<const double> x, std::size_t k) const;
};

/// One step of the classical Runge-Kutta scheme of order 4, which overwrites `x`, and its tangent linear: the derivative
/// of the scheme, exact to rounding.
template <class Model>
void rk4_step(const Model& model, double dt, std::span<double> x);
template <class Model>
std::vector<double> rk4_tangent(const Model& model, double dt, std::span<const double> x, std::span<const double> dx);
/// The Jacobian of the step, column by column: calls use(i, dy/dx_i) for each variable.
void rk4_columns(const auto& model, double dt, std::span<const double> x, const auto& use) {
  std::vector<double> unit(x.size(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    unit[i] = 1;
    use(i, rk4_tangent(model, dt, x, unit));
    unit[i] = 0;
  }
}

}  // namespace lockstep::prep
