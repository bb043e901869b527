#include "lockstep/nn/token_mixing.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/token_mixing.hpp"

namespace lockstep {

Var token_mixing(Tape& t, Var x, const Param& gate_up, const Param& down, double eps) {
  require(x.shape().rank() == 3, "token mixing: the input must be (B, T, D), not ", x.shape());
  const profile::Span span("token_mixing");
  Var y = t.output(x.shape(), t.wants_grad({x}, {&gate_up, &down}));
  Tensor kept, rstd;
  if (y.wants_grad()) {
    kept = t.keep({x.shape()[0], gate_up.shape[0], x.columns()});
    rstd = t.keep({x.shape()[0], x.columns()}, t.real_dtype());
  }
  ops::token_mixing_forward(t.stream(), y.value(), kept, rstd, x.value(), t.value(gate_up), t.value(down), eps);
  t.record("token_mixing", y, {&gate_up, &down}, [=, &t, &gate_up, &down] {
    ops::token_mixing_backward(t.stream(), t.grad_of(x), t.grad_of(gate_up), t.grad_of(down), y.grad(), y.value(), kept,
                               rstd, x.value(), t.value(gate_up), t.value(down));
  });
  return y;
}

}  // namespace lockstep
