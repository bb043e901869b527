#include "lockstep/nn/rmsnorm.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/rmsnorm.hpp"

namespace lockstep {

Normed rmsnorm(Tape& t, Var x, double eps, const NormTo& to) {
  const profile::Span span("rmsnorm");
  const auto result = [&](const Tensor& into, bool wants) {
    return !into ? t.output(x.shape(), wants) : wants ? t.variable(into) : t.constant(into);
  };
  const auto value = [](Var v) { return v ? v.value() : Tensor{}; };
  const Var y = result(to.y, t.wants_grad({x})), sum = to.a ? result(to.sum, t.wants_grad({x, to.a, to.b})) : Var{};
  const Tensor rstd = y.wants_grad() ? t.keep({x.rows()}, t.real_dtype()) : Tensor{};
  ops::rmsnorm_forward(t.stream(), y.value(), rstd, x.value(), eps, {value(sum), value(to.a), value(to.b)});
  t.record("rmsnorm", y, {}, [=, &t] { ops::rmsnorm_backward(t.stream(), t.grad_of(x), y.grad(), y.value(), rstd); });
  if (sum)
    t.record("add", sum, {}, [=, &t, a = to.a, b = to.b] {
      b ? t.pass_grad({y, a, b}, sum) : t.pass_grad({y, a}, sum);
    });
  return {y, sum};
}

}  // namespace lockstep
