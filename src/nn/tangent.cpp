#include "lockstep/nn/tangent.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/activation_tangent.hpp"
#include "lockstep/ops/conv1d.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/gemm.hpp"
#include "nn/shapes.hpp"

namespace lockstep {

Var linear_adjoint(Tape& t, Var x, const Param& weight) {
  const profile::Span span("linear_adjoint");
  Var y = t.output(with_columns(x.shape(), weight.shape[1]), t.wants_grad({x}, {&weight}));
  ops::gemm_nn(t.stream(), {y.value()}, x.value(), t.value(weight));
  t.record("linear_adjoint", y, {&weight}, [=, &t, &weight] {
    if (const Target dx = t.grad_of(x)) ops::gemm_nt(t.stream(), dx, y.grad(), t.value(weight));
    if (const Target dweight = t.grad_of(weight)) ops::gemm_tn(t.stream(), dweight, x.value(), y.grad());
  });
  return y;
}

Var conv1d_adjoint(Tape& t, Var x, const Param& weight) {
  const profile::Span span("conv1d_adjoint");
  Var y = t.output(with_columns(x.shape(), x.columns() / weight.shape[0]), t.wants_grad({x}, {&weight}));
  // The gradient of a convolution's input is its adjoint. That gradient does not read the input.
  ops::conv1d_backward(t.stream(), {y.value()}, {}, {}, x.value(), {}, y.value(), t.value(weight));
  t.record("conv1d_adjoint", y, {&weight}, [=, &t, &weight] {
    if (const Target dx = t.grad_of(x)) {
      const Tensor here = dx.accumulate ? t.keep(x.shape()) : dx.tensor;
      ops::conv1d_forward(t.stream(), here, {}, y.grad(), t.value(weight), {}, Activation::none);
      if (dx.accumulate) ops::add(t.stream(), dx.tensor, dx.tensor, here);
    }
    ops::conv1d_backward(t.stream(), {}, t.grad_of(weight), {}, x.value(), {}, y.grad(), t.value(weight));
  });
  return y;
}

Var activation_tangent(Tape& t, Var s, Var a, Activation activation) {
  const profile::Span span("activation_tangent");
  Var y = t.output(s.shape(), t.wants_grad({s, a}));
  const Tensor first = t.keep(a.shape()), second = t.keep(a.shape());
  ops::activation_slopes(t.stream(), first, second, a.value(), activation);
  ops::activation_tangent(t.stream(), {y.value()}, s.value(), first);
  t.record("activation_tangent", y, {}, [=, &t] {
    ops::activation_tangent_backward(t.stream(), t.grad_of(a), y.grad(), s.value(), second);
    ops::activation_tangent(t.stream(), t.grad_of(s), y.grad(), first);
  });
  return y;
}

}  // namespace lockstep
