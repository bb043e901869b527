#include "lockstep/ops/activation.hpp"

#include <array>
#include <cstring>

#include "activation_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/map.hpp"

namespace lockstep::ops {

namespace activation {

template <class T>
struct Multiply {
  T* dx;
  const T *dy, *derivative;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const { at.put(dx, at.get(dy) * at.get(derivative), accumulate); }
};

}  // namespace activation

LOCKSTEP_MAPS(activation::Multiply)

#ifndef LOCKSTEP_ISA

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
}  // namespace

void activation_forward(Stream& stream, const Tensor& y, const Tensor& derivative, const Tensor& x,
                        Activation activation) {
  require(y.shape() == x.shape(), "activation: x is ", x.shape(), ", so y must be too, not ", y.shape());
  require(!derivative || derivative.shape() == x.shape(), "activation: x is ", x.shape(),
          ", so derivative must be too, not ", derivative.shape());
  on_gpu(x, [&]<class T>() {
    gpu::visit_activation(activation, [&]<class Op>() {
      gpu::map<T>(stream, x.size(), gpu::packable(gpu::pack_size<T>(), {y, derivative, x}),
                  Apply<T, Op>{y, derivative, x});
    });
  });
  on_cpu(x, [&]<class T>() {
    T* d = derivative.data<T>();
    if (const auto kernel = cpu::active_activation_kernel<T>(activation)) {
      kernel(x.size(), y, d, x);
      return;
    }
    if (y.raw() != x.raw() && x.size() > 0) std::memcpy(y.raw(), x.raw(), x.size_bytes());
    for (std::int64_t i = 0; d && i < x.size(); ++i) d[i] = 1;
  });
}

void activation_backward(Stream& stream, Target dx, const Tensor& dy, const Tensor& derivative) {
  if (!dx) return;
  require(dx.tensor.shape() == dy.shape() && derivative.shape() == dy.shape(), "activation backward: dy is ",
          dy.shape(), ", dx ", dx.tensor.shape(), ", derivative ", derivative.shape(), "; all must be equal");
  map(stream, {dx.tensor, dy, derivative}, [&]<class T>() {
    return activation::Multiply<T>{dx.tensor, dy, derivative, dx.accumulate};
  });
}

#endif

}  // namespace lockstep::ops
