#include <type_traits>

#include "activation_tangent_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// One element per thread in each of these. Memory bound.
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

template <class T>
struct Tangent {
  std::int64_t n;
  T* t;
  const T *s, *first;
  bool accumulate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    gpu::store(t + i, gpu::load(s + i) * gpu::load(first + gpu::remainder(i, n)), accumulate);
  }
};

template <class T>
struct TangentBackward {
  std::int64_t n, directions;
  T* da;
  const T *dt, *s, *second;
  bool accumulate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    real_t<T> sum{};
    for (std::int64_t k = 0; k < directions; ++k) sum += gpu::load(s + k * n + i) * gpu::load(dt + k * n + i);
    gpu::store(da + i, sum * gpu::load(second + i), accumulate);
  }
};

}  // namespace

template <class T>
void activation_slopes(const Stream& stream, std::int64_t n, T* first, T* second, const T* x, Activation activation) {
  gpu::visit_activation(activation, [&]<class Op>() {
    gpu::map<T>(stream, n, false, Slopes<T, Op>{first, second, x});
  });
}

template <class T>
void activation_tangent(const Stream& stream, std::int64_t n, std::int64_t directions, T* t, const T* s, const T* first,
                        bool accumulate) {
  gpu::map<T>(stream, directions * n, false, Tangent<T>{n, t, s, first, accumulate});
}

template <class T>
void tangent_backward(const Stream& stream, std::int64_t n, std::int64_t directions, T* da, const T* dt, const T* s,
                      const T* second, bool accumulate) {
  gpu::map<T>(stream, n, false, TangentBackward<T>{n, directions, da, dt, s, second, accumulate});
}

LOCKSTEP_EACH_STORAGE(activation_slopes, activation_tangent, tangent_backward)

}  // namespace lockstep::ops::cuda
