#pragma once

/// The update of one element by SGD, compiled like adam_rule.hpp.
namespace lockstep::optim_kernels {

/// Scalars of one SGD step.
template <class T>
struct SgdStep {
  T scale, l2, lr, momentum;
  bool first;  ///< the buffer starts as the gradient
};

template <class T>
[[gnu::always_inline]] constexpr void sgd_rule(T& p, T gradient, const SgdStep<T>& k) {
  p -= k.lr * (k.scale * gradient + k.l2 * p);
}

/// SGD with momentum. `keep` is the momentum, or 0 in the first step.
template <class T>
[[gnu::always_inline]] constexpr void momentum_rule(T& p, T& buffer, T gradient, T keep, const SgdStep<T>& k) {
  const T b = keep * buffer + (k.scale * gradient + k.l2 * p);
  buffer = b;
  p -= k.lr * b;
}

}  // namespace lockstep::optim_kernels
