#include "lockstep/nn/dropout.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/ops/dropout.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {

Var dropout(Tape& t, Var x, const Dropout& dropout, const SampleRows& rows) {
  if (!dropout) return x;
  const profile::Span span("dropout");
  Var y = t.output(x.shape(), t.wants_grad({x}));
  ops::dropout(t.stream(), {y.value()}, x.value(), dropout, rows);
  t.record("dropout", y, {}, [=, &t] { ops::dropout(t.stream(), t.grad_of(x), y.grad(), dropout, rows); });
  return y;
}

Var add_dropped(Tape& t, Var x, Var y, const Dropout& dropout, const SampleRows& rows) {
  if (!dropout) return add(t, x, y);
  const profile::Span span("add_dropped");
  Var z = t.output(x.shape(), t.wants_grad({x, y}));
  ops::add_dropped(t.stream(), z.value(), x.value(), y.value(), dropout, rows);
  t.record("add_dropped", z, {}, [=, &t] {
    ops::dropout(t.stream(), t.grad_of(y), z.grad(), dropout, rows);
    t.pass_grad({x}, z);
  });
  return z;
}

}  // namespace lockstep
