#include "lockstep/nn/rmsnorm.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/rmsnorm.hpp"

namespace lockstep {

Var rmsnorm(Tape& t, Var x, Var branch, double eps, const Tensor& into) {
  const profile::Span span("rmsnorm");
  const bool wants = t.wants_grad({x, branch});
  Var y = !into ? t.output(x.shape(), wants) : wants ? t.variable(into) : t.constant(into);
  const Tensor rstd = y.wants_grad() ? t.keep({x.rows()}, t.real_dtype()) : Tensor{};
  ops::rmsnorm_forward(t.stream(), y.value(), rstd, x.value(), branch.value(), eps);
  t.record("rmsnorm", y, {},
           [=, &t] { ops::rmsnorm_backward(t.stream(), t.grad_of(x), t.grad_of(branch), y.grad(), y.value(), rstd); });
  return y;
}

}  // namespace lockstep
