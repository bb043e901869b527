#pragma once

/// The update of one element by SGD, compiled like adam_rule.hpp.
namespace lockstep::optim_kernels {

/// Without momentum.
template <class T>
struct SgdStep {
  static constexpr int kStates = 0;
  T scale, l2, lr;

  [[gnu::always_inline]] constexpr void operator()(T& p, T&, T&, T gradient) const {
    p -= lr * (scale * gradient + l2 * p);
  }
};

template <class T>
struct MomentumStep {
  static constexpr int kStates = 1;
  T scale, l2, lr;
  T keep;  ///< the momentum, or 0 in the first step, whose buffer starts as the gradient

  [[gnu::always_inline]] constexpr void operator()(T& p, T& buffer, T&, T gradient) const {
    const T b = keep * buffer + (scale * gradient + l2 * p);
    buffer = b;
    p -= lr * b;
  }
};

}  // namespace lockstep::optim_kernels
