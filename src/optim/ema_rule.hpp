#pragma once

/// The update of one element of the exponential moving average, compiled like adam_rule.hpp.
namespace lockstep::optim_kernels {

template <class T>
[[gnu::always_inline]] constexpr void ema_rule(T& shadow, T p, T decay, T rest) {
  shadow = decay * shadow + rest * p;
}

}  // namespace lockstep::optim_kernels
