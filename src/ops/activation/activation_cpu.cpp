#include "activation_kernels.hpp"
#include "fast_activation.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void multiply(std::int64_t n, T* dx, const T* dy, const T* d, bool accumulate) {
  for (std::int64_t i = 0; i < n; i += kLanes<T>) {
    const Lanes<T> lanes = lanes_at<T>(i, n);
    const Vec<T> product = load(dy + i, lanes) * load(d + i, lanes);
    store(dx + i, accumulate ? load(dx + i, lanes) + product : product, lanes);
  }
}

}  // namespace

template <class T>
ActivationKernel<T> activation_kernel(Activation activation) {
  return visit_activation<ActivationKernel<T>>(activation, []<class Op>() { return activate<Op, T>; });
}
LOCKSTEP_EACH_FLOAT(activation_kernel)
LOCKSTEP_KERNEL_TABLE(MultiplyKernel, multiply_kernel, multiply<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
