#pragma once

/// The update of one element by SGD, compiled like adam_rule.hpp.
namespace lockstep::optim_kernels {

/// Scalars of one SGD step.
template <class T>
struct SgdStep {
  T scale, l2, lr;
  T keep;  ///< the momentum, or 0 in the first step, whose buffer starts as the gradient
};

template <class T>
[[gnu::always_inline]] constexpr void sgd_rule(T& p, T gradient, const SgdStep<T>& k) {
  p -= k.lr * (k.scale * gradient + k.l2 * p);
}

/// SGD with momentum.
template <class T>
[[gnu::always_inline]] constexpr void momentum_rule(T& p, T& buffer, T gradient, const SgdStep<T>& k) {
  const T b = k.keep * buffer + (k.scale * gradient + k.l2 * p);
  buffer = b;
  p -= k.lr * b;
}

}  // namespace lockstep::optim_kernels
