#include "lockstep/nn/swiglu.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/swiglu.hpp"
#include "nn/shapes.hpp"

namespace lockstep {

Var swiglu(Tape& t, Var x, const Param& weight) {
  const std::int64_t width = weight.shape[0] / 2;
  const profile::Span span("swiglu");
  Var y = t.output(with_columns(x.shape(), width), t.wants_grad({x}, {&weight}));
  const Tensor gate_up = y.wants_grad() ? t.keep({x.rows(), 2 * width}) : Tensor{};
  ops::swiglu_forward(t.stream(), y.value(), gate_up, x.value(), t.value(weight));
  t.record("swiglu", y, {&weight}, [=, &t, &weight] {
    ops::swiglu_backward(t.stream(), t.grad_of(x), t.grad_of(weight), y.grad(), gate_up, x.value(), t.value(weight));
  });
  return y;
}

}  // namespace lockstep
