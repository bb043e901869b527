#pragma once
#include <cmath>

#include "lockstep/ops/regression_loss.hpp"

/// Regression losses of one element and their gradients, from e = y - target.
namespace lockstep::ops {

struct Squared {
  template <class T>
  constexpr T operator()(T e, T& gradient) const {
    gradient = 2 * e;
    return e * e;
  }
};
struct Absolute {
  template <class T>
  constexpr T operator()(T e, T& gradient) const {
    gradient = static_cast<T>((e > 0) - (e < 0));
    return std::fabs(e);
  }
};
struct Huber {
  template <class T>
  constexpr T operator()(T e, T& gradient) const {
    const T size = std::fabs(e);
    gradient = size < 1 ? e : static_cast<T>((e > 0) - (e < 0));
    return size < 1 ? T(0.5) * e * e : size - T(0.5);
  }
};

/// f of the loss of this kind
template <class F>
constexpr auto visit_regression(Regression kind, F&& f) {
  if (kind == Regression::mse) return f(Squared{});
  if (kind == Regression::mae) return f(Absolute{});
  return f(Huber{});
}
template <class T>
constexpr T regression(Regression kind, T e, T& gradient) {
  return visit_regression(kind, [&](auto f) { return f(e, gradient); });
}

}  // namespace lockstep::ops
