#pragma once
#include <cmath>

#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/activation.hpp"

/// Activations for kernels: value and derivative from one argument, with as few special functions as possible.
/// Comparisons are written so that a NaN stays a NaN.
namespace lockstep::gpu {

struct Identity {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    y = a;
    d = 1;
  }
};
struct Gelu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    const T phi = T(0.5) * std::erfc(-a * T(0.70710678118654752440));
    y = a * phi;
    d = phi + a * T(0.39894228040143267794) * std::exp(T(-0.5) * a * a);
  }
};
struct Relu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    d = a > 0 ? T{1} : T{0};
    y = a < 0 ? T{0} : a;  // mutant-equivalent: 0 either way
  }
};
struct LeakyRelu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    d = a > 0 ? T{1} : T(0.01);
    y = a * d;
  }
};
/// With m = exp(2|a|) - 1: |y| = m/(m + 2), derivative = 4 (m + 1)/(m + 2)^2. Neither formula cancels.
struct Tanh {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    const T size = std::fabs(a);
    const T m = std::expm1(2 * (size > 43 ? T{43} : size)), r = 1 / (m + 2);  // mutant-equivalent: 43 either way
    y = std::copysign(m * r, a);
    d = (m + 1) * r * (4 * r);
  }
};
struct Sigmoid {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    const T e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
    y = a > 0 ? r : e * r;  // mutant-equivalent: e is 1 at 0
    d = e * r * r;
  }
};
struct Silu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    T s, ds;
    Sigmoid::apply(a, s, ds);
    y = a * s;
    d = s + a * ds;
  }
};
struct Elu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    y = a > 0 ? a : std::expm1(a);
    d = a > 0 ? T{1} : std::exp(a);  // mutant-equivalent: exp is 1 at 0
  }
};

/// Calls f.template operator()<Op>() with one of these activations.
template <class F>
constexpr void visit_activation(ops::Activation activation, F&& f) {
  switch (activation) {
    case ops::Activation::none:
      return f.template operator()<Identity>();
    case ops::Activation::gelu:
      return f.template operator()<Gelu>();
    case ops::Activation::relu:
      return f.template operator()<Relu>();
    case ops::Activation::tanh:
      return f.template operator()<Tanh>();
    case ops::Activation::sigmoid:
      return f.template operator()<Sigmoid>();
    case ops::Activation::leaky_relu:
      return f.template operator()<LeakyRelu>();
    case ops::Activation::elu:
      return f.template operator()<Elu>();
    case ops::Activation::silu:
      return f.template operator()<Silu>();
  }
}

/// Applies an activation that is the same for all threads.
template <class T>
constexpr void activate(ops::Activation activation, T a, T& y, T& d) {
  visit_activation(activation, [&]<class Op>() { Op::apply(a, y, d); });
}

}  // namespace lockstep::gpu
