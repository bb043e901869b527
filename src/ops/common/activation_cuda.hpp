#pragma once
#include <cmath>
#include <iterator>

#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/activation.hpp"
#include "ops/common/gelu_tail.hpp"

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
/// y = a Phi(a), d = Phi(a) + a phi(a).
struct Gelu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    const T phi = T(0.5) * std::erfc(-a * T(0.70710678118654752440));
    y = a * phi;
    d = phi + a * kDensity<T> * std::exp(T(-0.5) * a * a);
  }
  /// Phi(-|a|) and phi(a) share an exponential, whose argument is exact: the rounding of a^2 becomes a factor. The
  /// error of y, and that of d relative to the larger of its terms, is below 5e-7. Below 2e-37, where the exponential
  /// becomes subnormal, it is below 5e-7 of that.
  constexpr static void apply(float a, float& y, float& d) {
    const float size = std::fabs(a), x = size > 15 ? 15.0f : size;  // from 15 on the exponential is 0
    const float square = x * x, rounded = std::exp(-0.5f * square);
    const float e = std::fma(-0.5f * std::fma(x, x, -square), rounded, rounded);
    const float t = 1 / std::fma(x, ops::kGeluTailScale, 1.0f);
    const float tail = e * (t * polynomial(t)), slope = x * kDensity<float> * e;
    y = a > 0 ? a * (1 - tail) : -x * tail;
    d = a > 0 ? 1 - tail + slope : tail - slope;
  }

 private:
  template <class T>
  static constexpr T kDensity = T(0.39894228040143267794);  // 1/sqrt(2 pi)
  /// The polynomial of kGeluTail from its power K on. No loop: nvcc compiles a constant of the host with an index that
  /// varies to a trap, without a warning.
  template <std::size_t K = 0>
  constexpr static float polynomial(float t) {
    constexpr float c = ops::kGeluTail[K];
    if constexpr (K + 1 == std::size(ops::kGeluTail))
      return c;
    else
      return std::fma(polynomial<K + 1>(t), t, c);
  }
};
struct Relu {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    d = a > 0 ? T{1} : T{0};
    y = a < 0 ? T{0} : a;
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
    const T m = std::expm1(2 * (size > 43 ? T{43} : size)), r = 1 / (m + 2);
    y = std::copysign(m * r, a);
    d = (m + 1) * r * (4 * r);
  }
};
struct Sigmoid {
  template <class T>
  constexpr static void apply(T a, T& y, T& d) {
    const T e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
    y = a > 0 ? r : e * r;
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
    d = a > 0 ? T{1} : std::exp(a);
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
