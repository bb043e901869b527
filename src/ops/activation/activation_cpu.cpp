#include "activation_kernels.hpp"
#include "fast_activation.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

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
      return activate<FastGelu, T>;
    case Activation::relu:
      return activate<Relu, T>;
    case Activation::tanh:
      return activate<Tanh, T>;
    case Activation::sigmoid:
      return activate<Sigmoid, T>;
    case Activation::leaky_relu:
      return activate<LeakyRelu, T>;
    case Activation::elu:
      return activate<Elu, T>;
    case Activation::silu:
      return activate<Silu, T>;
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
