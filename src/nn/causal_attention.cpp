#include "lockstep/nn/causal_attention.hpp"

#include "lockstep/base/profile.hpp"

namespace lockstep {

Var causal_attention(Tape& t, Var q, Var k, Var v, const CausalAttention& attention, const TimeTables& time) {
  const Param *keys = time.keys, *values = time.values;
  const ops::TimeBuckets buckets{keys ? t.value(*keys) : Tensor{}, values ? t.value(*values) : Tensor{}, time.times,
                                 time.drop, time.dropout};
  const profile::Span span("causal_attention");
  Var y = t.output(q.shape(), t.wants_grad({q, k, v}, {keys, values}));
  const Tensor logsum = y.wants_grad() ? t.keep({q.rows(), attention.heads}, t.real_dtype()) : Tensor{};
  ops::causal_attention_forward(t.stream(), y.value(), logsum, q.value(), k.value(), v.value(), attention, buckets);
  t.record("causal_attention", y, {keys, values}, [=, &t] {
    ops::causal_attention_backward(t.stream(), t.grad_of(q), t.grad_of(k), t.grad_of(v),
                                   keys ? t.grad_of(*keys) : Target{}, values ? t.grad_of(*values) : Target{}, y.grad(),
                                   y.value(), q.value(), k.value(), v.value(), logsum, attention, buckets);
  });
  return y;
}

}  // namespace lockstep
