#include "activation_kernels.hpp"
#include "fast_activation.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// The second derivative at a of an activation with value y and derivative d.
template <class Op, class T>
LOCKSTEP_INLINE Vec<T> curvature(Vec<T> a, Vec<T> y, Vec<T> d) {
  using V = Vec<T>;
  if constexpr (std::is_same_v<Op, FastGelu>) {
    const V x = min(splat(kLargestDeviation<T>), abs(a));
    return exp_half_square(x) * splat(T(0.39894228040143267794)) * fma(-x, x, splat(T{2}));
  } else if constexpr (std::is_same_v<Op, Tanh>) {
    return splat(T{-2}) * y * d;
  } else if constexpr (std::is_same_v<Op, Sigmoid>) {
    return d * fma(splat(T{-2}), y, splat(T{1}));
  } else if constexpr (std::is_same_v<Op, Silu>) {
    V s, ds;
    Sigmoid::apply<T>(a, s, ds);
    const V limited = min(splat(kLargestExponent<T>), max(splat(-kLargestExponent<T>), a));
    return ds * fma(limited, fma(splat(T{-2}), s, splat(T{1})), splat(T{2}));
  } else if constexpr (std::is_same_v<Op, Elu>) {
    return a > V{} ? V{} : d;
  } else {
    return V{};
  }
}

template <class Op, class T>
void slopes(std::int64_t n, T* first, T* second, const T* x) {
  for (std::int64_t i = 0; i < n; i += kLanes<T>) {
    const Lanes<T> lanes = lanes_at<T>(i, n);
    const Vec<T> a[1] = {load(x + i, lanes)};
    Vec<T> y[1], d[1];
    apply<Op, T>(a, y, d);
    store(first + i, d[0], lanes);
    store(second + i, curvature<Op, T>(a[0], y[0], d[0]), lanes);
  }
}

}  // namespace

template <class T>
ActivationKernel<T> activation_kernel(Activation activation) {
  return visit_activation<ActivationKernel<T>>(activation, []<class Op>() { return activate<Op, T>; });
}
template <class T>
SlopesKernel<T> slopes_kernel(Activation activation) {
  return visit_activation<SlopesKernel<T>>(activation, []<class Op>() { return slopes<Op, T>; });
}
LOCKSTEP_EACH_FLOAT(activation_kernel, slopes_kernel)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
