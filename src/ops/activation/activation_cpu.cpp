#include "activation_functions.hpp"
#include "activation_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class Op, class T>
void map(std::int64_t n, T* y, T* derivative, const T* x) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t i = 0;
  Vec<T> value, slope;
  for (; i + kL <= n; i += kL) {
    Op::template apply<T>(load(x + i), value, slope);
    store(y + i, value);
    if (derivative) store(derivative + i, slope);
  }
  if (i < n) {
    const Lanes<T> lanes(n - i);
    Op::template apply<T>(load(x + i, lanes), value, slope);
    store(y + i, value, lanes);
    if (derivative) store(derivative + i, slope, lanes);
  }
}

template <class T>
void multiply(std::int64_t n, T* dx, const T* dy, const T* d, bool accumulate) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t i = 0; i < n; i += kL) {
    const Lanes<T> lanes(n - i < kL ? n - i : kL);
    const Vec<T> product = load(dy + i, lanes) * load(d + i, lanes);
    store(dx + i, accumulate ? load(dx + i, lanes) + product : product, lanes);
  }
}

}  // namespace

template <class T>
ActivationKernel<T> activation_kernel(Activation activation) {
  switch (activation) {
    case Activation::none:
      return nullptr;
    case Activation::gelu:
      return map<Gelu, T>;
    case Activation::relu:
      return map<Relu, T>;
    case Activation::tanh:
      return map<Tanh, T>;
    case Activation::sigmoid:
      return map<Sigmoid, T>;
    case Activation::leaky_relu:
      return map<LeakyRelu, T>;
    case Activation::elu:
      return map<Elu, T>;
    case Activation::silu:
      return map<Silu, T>;
  }
  return nullptr;
}
template <class T>
MultiplyKernel<T> multiply_kernel() {
  return multiply<T>;
}

LOCKSTEP_EACH_FLOAT(activation_kernel)
LOCKSTEP_EACH_FLOAT(multiply_kernel)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
