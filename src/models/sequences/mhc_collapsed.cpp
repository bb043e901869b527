#include "models/sequences/mhc_collapsed.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/collapsed_connections.hpp"

namespace lockstep {

Var mhc_collapsed(Tape& t, Var x, Var f, const Param& alpha, const Linear& phi) {
  const Param *w = phi.weight, *b = phi.bias;
  const ops::CollapsedConnection site = {t.value(alpha), t.value(*w), t.value(*b)};
  const profile::Span span("mhc_collapsed");
  Var y = t.output(x.shape(), t.wants_grad({x, f}, {&alpha, w, b}));
  ops::collapsed_connection_forward(t.stream(), y.value(), x.value(), f.value(), site);
  t.record("mhc_collapsed", y, {&alpha, w, b}, [=, &t, &alpha] {
    const ops::CollapsedConnection gradients = {t.grad_of(alpha).tensor, t.grad_of(*w).tensor, t.grad_of(*b).tensor};
    ops::collapsed_connection_backward(t.stream(), t.grad_of(x), t.grad_of(f), gradients, y.grad(), x.value(),
                                       f.value(), site);
  });
  return y;
}

}  // namespace lockstep
