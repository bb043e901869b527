#include "lockstep/nn/dropout.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/dropout.hpp"

namespace lockstep {

Var dropout(Tape& t, Var x, const Dropout& dropout, const SampleRows& rows) {
  if (!dropout) return x;
  const profile::Span span("dropout");
  Var y = t.output(x.shape(), t.wants_grad({x}));
  ops::dropout(t.stream(), {y.value()}, x.value(), dropout, rows);
  t.record("dropout", y, {}, [=, &t] { ops::dropout(t.stream(), t.grad_of(x), y.grad(), dropout, rows); });
  return y;
}

}  // namespace lockstep
