#include "lockstep/nn/causal_attention.hpp"

#include "lockstep/base/profile.hpp"

namespace lockstep {

namespace {
Tensor value_of(Var v) { return v ? v.value() : Tensor{}; }

ops::TimeBuckets buckets_of(const Tape& t, const TimeTables& time) {
  return {time.keys ? t.value(*time.keys) : Tensor{},
          time.values ? t.value(*time.values) : Tensor{},
          time.times,
          time.drop,
          time.dropout,
          time.prepared};
}
}  // namespace

Tensor prepare_times(Tape& t, const CausalAttention& attention, const TimeTables& time) {
  if (!t.stream().device().is_cuda()) return {};
  const ops::TimeBuckets buckets = buckets_of(t, time);
  const Tensor prepared = t.keep({ops::prepared_times_size(attention, buckets)}, t.real_dtype());
  ops::prepare_times(t.stream(), prepared, attention, buckets);
  return prepared;
}

Var causal_attention(Tape& t, Var q, Var kv, const CausalAttention& attention, const TimeTables& time) {
  const Param *keys = time.keys, *values = time.values;
  const ops::TimeBuckets buckets = buckets_of(t, time);
  const profile::Span span("causal_attention");
  const std::int64_t parts = kv ? 1 : 3;  // of q
  Var y = t.output({q.rows(), q.columns() / parts}, t.wants_grad({q, kv}, {keys, values}));
  const Tensor logsum = y.wants_grad() ? t.keep({q.rows(), attention.heads}, t.real_dtype()) : Tensor{};
  ops::causal_attention_forward(t.stream(), y.value(), logsum, q.value(), value_of(kv), attention, buckets);
  t.record("causal_attention", y, {keys, values}, [=, &t] {
    ops::causal_attention_backward(t.stream(), t.grad_of(q), t.grad_of(kv), keys ? t.grad_of(*keys) : Target{},
                                   values ? t.grad_of(*values) : Target{}, y.grad(), y.value(), q.value(), value_of(kv),
                                   logsum, attention, buckets);
  });
  return y;
}

}  // namespace lockstep
