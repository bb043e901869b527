#include "lockstep/ops/activation_tangent.hpp"

#include <algorithm>
#include <type_traits>

#include "activation_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/map.hpp"

namespace lockstep::ops {

namespace tangent {

/// A row is one direction: t = s first.
template <class T>
struct Forward {
  T* t;
  const T *s, *first;
  std::int64_t n;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(t + at.row * n, at.get(s + at.row * n) * at.get(first), accumulate);
  }
};

/// da (+)= second sum_k s_k dt_k over the directions k, which are n elements apart. There is one row.
template <class T>
struct Backward {
  T* da;
  const T *dt, *s, *second;
  std::int64_t n, directions;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    decltype(at.get(second)) sum{};
    for (std::int64_t k = 0; k < directions; ++k) sum = at.fma(at.get(s + k * n), at.get(dt + k * n), sum);
    at.put(da, sum * at.get(second), accumulate);
  }
};

}  // namespace tangent

LOCKSTEP_MAPS(tangent::Forward, tangent::Backward)

#ifndef LOCKSTEP_ISA

namespace {

/// One element per thread . Memory bound.
template <class T, class Op>
struct Slopes {
  T *first, *second;
  const T* x;
  template <int N>
  __device__ void at(std::int64_t i) const {
    using R = real_t<T>;
    const R a = gpu::load(x + i);
    R y, d, curvature = 0;
    Op::apply(a, y, d);
    if constexpr (std::is_same_v<Op, gpu::Gelu>) {
      const R square = a * a;  // beyond 1500 the exponential is 0
      curvature = R(0.39894228040143267794) * std::exp(R(-0.5) * square) * (2 - (square > 1500 ? R{1500} : square));
    } else if constexpr (std::is_same_v<Op, gpu::Tanh>) {
      curvature = -2 * y * d;
    } else if constexpr (std::is_same_v<Op, gpu::Sigmoid>) {
      curvature = d * (1 - 2 * y);
    } else if constexpr (std::is_same_v<Op, gpu::Silu>) {
      R s, ds;
      gpu::Sigmoid::apply(a, s, ds);
      curvature = ds * (2 + a * (1 - 2 * s));
    } else if constexpr (std::is_same_v<Op, gpu::Elu>) {
      curvature = a > 0 ? R{0} : d;
    }
    gpu::store(first + i, d);
    gpu::store(second + i, curvature);
  }
};

}  // namespace

void activation_slopes(Stream& stream, const Tensor& first, const Tensor& second, const Tensor& x,
                       Activation activation) {
  require(first.shape() == x.shape() && second.shape() == x.shape(), "activation slopes: x is ", x.shape(), ", first ",
          first.shape(), ", second ", second.shape(), "; all must be equal");
  on_gpu(x, [&]<class T>() {
    gpu::visit_activation(activation, [&]<class Op>() {
      gpu::map<T>(stream, x.size(), false, Slopes<T, Op>{first, second, x});
    });
  });
  on_cpu(x, [&]<class T>() {
    if (const auto kernel = cpu::active_slopes_kernel<T>(activation)) return kernel(x.size(), first, second, x);
    std::ranges::fill(first.span<T>(), T{1});
    std::ranges::fill(second.span<T>(), T{0});
  });
}

namespace {
std::int64_t directions_of(const Tensor& s, const Tensor& other, const Tensor& slope) {
  const std::int64_t n = slope.size();
  require(s.shape() == other.shape() && (n == 0 ? s.size() == 0 : s.size() % n == 0), "activation tangent: s is ",
          s.shape(), ", its result ", other.shape(), ", the derivative ", slope.shape(),
          "; the first two must be equal and a multiple of the third");
  return n == 0 ? 0 : s.size() / n;
}
}  // namespace

void activation_tangent(Stream& stream, Target t, const Tensor& s, const Tensor& first) {
  if (!t) return;
  const std::int64_t directions = directions_of(s, t.tensor, first), n = first.size();
  map_rows(stream, {directions, n}, {t.tensor, s, first}, [&]<class T>() {
    return tangent::Forward<T>{t.tensor, s, first, n, t.accumulate};
  });
}

void activation_tangent_backward(Stream& stream, Target da, const Tensor& dt, const Tensor& s, const Tensor& second) {
  if (!da) return;
  const std::int64_t directions = directions_of(s, dt, second), n = second.size();
  require(da.tensor.shape() == second.shape(), "activation tangent backward: second is ", second.shape(),
          ", so da must be too, not ", da.tensor.shape());
  map_rows(stream, {1, n}, {da.tensor, dt, s, second},
           [&]<class T>() { return tangent::Backward<T>{da.tensor, dt, s, second, n, directions, da.accumulate}; });
}

#endif

}  // namespace lockstep::ops
