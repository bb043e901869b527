#include "lockstep/nn/norm.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/layernorm.hpp"
#include "lockstep/ops/rmsnorm.hpp"

namespace lockstep {

LayerNorm add_layernorm(ParamStore& params, const std::string& name, std::int64_t columns, double eps) {
  const Param& gamma = params.add(name + ".weight", {columns}, init::ones());
  return {&gamma, &params.add(name + ".bias", {columns}, init::zeros()), eps};
}

Var layernorm(Tape& t, Var x, const LayerNorm& norm) {
  const Param *gamma = norm.gamma, *beta = norm.beta;
  const profile::Span span("layernorm");
  Var y = t.output(x.shape(), t.wants_grad({x}, {gamma, beta}));
  const Tensor mean = y.wants_grad() ? t.keep({x.rows()}, t.real_dtype()) : Tensor{};
  const Tensor rstd = y.wants_grad() ? t.keep({x.rows()}, t.real_dtype()) : Tensor{};
  ops::layernorm_forward(t.stream(), y.value(), mean, rstd, x.value(), t.value(*gamma), t.value(*beta), norm.eps);
  t.record("layernorm", y, {gamma, beta}, [=, &t] {
    GradientEpilogue* const epilogue = t.epilogue_of(x);
    const Target sums = epilogue && epilogue->sums ? t.grad_of(*epilogue->sums) : Target{};
    ops::layernorm_backward(t.stream(), t.grad_of(x), t.grad_of(*gamma), t.grad_of(*beta), y.grad(), x.value(), mean,
                            rstd, t.value(*gamma), epilogue ? epilogue->derivative : Tensor{}, sums);
    if (epilogue) epilogue->done = true;
  });
  return y;
}

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
