#include "activation_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Memory bound, including GELU with its error function: reads x, writes y and the derivative.
template <class T, class Op>
struct Apply {
  T* y;
  T* derivative;
  const T* x;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<real_t<T>, N> in = gpu::load<N>(x + i);
    gpu::Pack<real_t<T>, N> value, slope;
#pragma unroll
    for (int k = 0; k < N; ++k) Op::apply(in.at[k], value.at[k], slope.at[k]);
    gpu::store(y + i, value);
    if (derivative != nullptr) gpu::store(derivative + i, slope);
  }
};

template <class T>
struct Multiply {
  T* dx;
  const T *dy, *d;
  bool accumulate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<real_t<T>, N> a = gpu::load<N>(dy + i), b = gpu::load<N>(d + i);
    gpu::Pack<real_t<T>, N> to{};
    if (accumulate) to = gpu::load<N>(dx + i);
#pragma unroll
    for (int k = 0; k < N; ++k) to.at[k] += a.at[k] * b.at[k];
    gpu::store(dx + i, to);
  }
};

}  // namespace

template <class T>
void activation_forward(const Stream& stream, std::int64_t n, T* y, T* derivative, const T* x, Activation activation) {
  gpu::visit_activation(activation, [&]<class Op>() {
    gpu::map<T>(stream, n, gpu::aligned(y, derivative, x), Apply<T, Op>{y, derivative, x});
  });
}

template <class T>
void multiply(const Stream& stream, std::int64_t n, T* dx, const T* dy, const T* d, bool accumulate) {
  gpu::map<T>(stream, n, gpu::aligned(dx, dy, d), Multiply<T>{dx, dy, d, accumulate});
}

LOCKSTEP_EACH_STORAGE(activation_forward, multiply)

}  // namespace lockstep::ops::cuda
