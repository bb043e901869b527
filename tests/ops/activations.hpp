#pragma once
#include <span>

#include "lockstep/ops/activation.hpp"
#include "support/test.hpp"

namespace lockstep::test {

inline constexpr ops::Activation kActivations[] = {
    ops::Activation::none,    ops::Activation::gelu,       ops::Activation::relu, ops::Activation::tanh,
    ops::Activation::sigmoid, ops::Activation::leaky_relu, ops::Activation::elu,  ops::Activation::silu};
/// Those of hidden layers.
inline constexpr std::span kSlopes = std::span(kActivations).subspan<1>();

/// Value and derivative by definition, in extended precision.
inline std::pair<double, double> exact(ops::Activation activation, double x) {
  const long double a = x, e = std::exp(a), s = 1 / (1 + std::exp(-a));
  const long double phi = std::erfc(-a / std::sqrt(2.0L)) / 2,
                    pdf = std::exp(-a * a / 2) / std::sqrt(2 * std::acos(-1.0L));
  const auto pair = [](long double y, long double d) {
    return std::pair(static_cast<double>(y), static_cast<double>(d));
  };
  switch (activation) {
    case ops::Activation::none:
      return pair(a, 1);
    case ops::Activation::gelu:
      return pair(a * phi, phi + a * pdf);
    case ops::Activation::relu:
      return pair(a > 0 ? a : 0, a > 0 ? 1 : 0);
    case ops::Activation::tanh:
      return pair(std::tanh(a), 1 / (std::cosh(a) * std::cosh(a)));
    case ops::Activation::sigmoid:
      return pair(s, s / (1 + e));
    case ops::Activation::leaky_relu:
      return pair(a > 0 ? a : a / 100, a > 0 ? 1 : 0.01L);
    case ops::Activation::elu:
      return pair(a > 0 ? a : std::expm1(a), a > 0 ? 1 : e);
    case ops::Activation::silu:
      return pair(a * s, s + a * s / (1 + e));
  }
  return {};
}

}  // namespace lockstep::test
