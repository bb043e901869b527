#include "lockstep/nn/causal_attention.hpp"

#include "lockstep/base/profile.hpp"

namespace lockstep {

namespace {
Tensor value_of(Var v) { return v ? v.value() : Tensor{}; }
}  // namespace

Var causal_attention(Tape& t, Var q, Var k, Var v, const CausalAttention& attention, const TimeTables& time) {
  const Param *keys = time.keys, *values = time.values;
  const ops::TimeBuckets buckets{keys ? t.value(*keys) : Tensor{}, values ? t.value(*values) : Tensor{}, time.times,
                                 time.drop, time.dropout};
  const profile::Span span("causal_attention");
  const std::int64_t parts = k ? 1 : 3;  // of q
  Var y = t.output({q.rows(), q.columns() / parts}, t.wants_grad({q, k, v}, {keys, values}));
  const Tensor logsum = y.wants_grad() ? t.keep({q.rows(), attention.heads}, t.real_dtype()) : Tensor{};
  ops::causal_attention_forward(t.stream(), y.value(), logsum, q.value(), value_of(k), value_of(v), attention,
                                buckets);
  t.record("causal_attention", y, {keys, values}, [=, &t] {
    ops::causal_attention_backward(t.stream(), t.grad_of(q), t.grad_of(k), t.grad_of(v),
                                   keys ? t.grad_of(*keys) : Target{}, values ? t.grad_of(*values) : Target{}, y.grad(),
                                   y.value(), q.value(), value_of(k), value_of(v), logsum, attention, buckets);
  });
  return y;
}

}  // namespace lockstep
