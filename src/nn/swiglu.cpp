#include "lockstep/nn/swiglu.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/linear.hpp"
#include "lockstep/ops/swiglu.hpp"

namespace lockstep {

Var gated_residual(Tape& t, Var x, const Param& gate_up, const Param& down, const std::optional<double>& norm_eps) {
  const std::int64_t rows = x.rows(), width = down.shape[1];
  const bool normed = norm_eps.has_value();
  const profile::Span span("swiglu");
  Var y = t.output(x.shape(), t.wants_grad({x}, {&gate_up, &down}));
  const Tensor h = t.keep({rows, width}), both = y.wants_grad() ? t.keep({rows, 2 * width}) : Tensor{};
  const Tensor rstd = normed && y.wants_grad() ? t.keep({rows}, t.real_dtype()) : Tensor{};
  const Tensor z = normed ? t.keep(x.shape()) : x.value();
  if (normed)
    ops::normed_swiglu_forward(t.stream(), h, z, rstd, both, x.value(), t.value(gate_up), *norm_eps);
  else
    ops::swiglu_forward(t.stream(), h, both, x.value(), t.value(gate_up));
  ops::linear_forward(t.stream(), y.value(), {}, h, t.value(down), {}, ops::Activation::none, {}, {}, z);
  t.record("swiglu", y, {&gate_up, &down}, [=, &t, &gate_up, &down] {
    const Tensor dy = t.own_grad(y);
    const Target dgate_up = t.grad_of(gate_up);
    ops::linear_backward(t.stream(), {}, t.grad_of(down), {}, dy, {}, h, t.value(down));
    ops::linear_backward(t.stream(), {h}, {}, {}, dy, {}, h, t.value(down));  // the gradient of h overwrites it
    if (normed) {
      ops::normed_swiglu_backward(t.stream(), t.grad_of(x), dgate_up, h, dy, both, z, rstd, x.value(),
                                  t.value(gate_up));
    } else {
      ops::swiglu_backward(t.stream(), {dy, true}, dgate_up, h, both, z, t.value(gate_up));
      t.pass_grad({x}, y);
    }
  });
  return y;
}

}  // namespace lockstep
