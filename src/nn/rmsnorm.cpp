#include "lockstep/nn/rmsnorm.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/rmsnorm.hpp"

namespace lockstep {

Var rmsnorm(Tape& t, Var x, Var branch, double eps) {
  const profile::Span span("rmsnorm");
  Var y = t.output(x.shape(), t.wants_grad({x, branch}));
  const Tensor rstd = y.wants_grad() ? t.keep({x.rows()}, t.real_dtype()) : Tensor{};
  ops::rmsnorm_forward(t.stream(), y.value(), rstd, x.value(), branch.value(), eps);
  t.record("rmsnorm", y, {},
           [=, &t] { ops::rmsnorm_backward(t.stream(), t.grad_of(x), t.grad_of(branch), y.grad(), y.value(), rstd); });
  return y;
}

}  // namespace lockstep
