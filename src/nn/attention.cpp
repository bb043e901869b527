#include "lockstep/nn/attention.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/rope.hpp"
#include "lockstep/ops/token_pool.hpp"

namespace lockstep {

Var attention(Tape& t, Var qkv, const AttentionOptions& options) {
  const Shape& shape = qkv.shape();
  require(shape.rank() == 3, "attention: the input must be (B, T, columns), not ", shape);
  const profile::Span span("attention");
  Var y = t.output({shape[0], shape[1], shape[2] / 3}, t.wants_grad({qkv}));
  const Tensor lse = y.wants_grad() ? t.keep({shape[0], options.heads, shape[1]}, t.real_dtype()) : Tensor{};
  ops::attention_forward(t.stream(), y.value(), lse, qkv.value(), options);
  t.record("attention", y, {}, [=, &t] {
    ops::attention_backward(t.stream(), t.grad_of(qkv), y.grad(), y.value(), lse, qkv.value(), options);
  });
  return y;
}

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

Var token_pool(Tape& t, Var x, Var scores, std::int64_t abreast) {
  const Shape& shape = x.shape();
  require(shape.rank() == 3 && shape[0] % abreast == 0, "token pool: x must be (N, T, D) with N a multiple of ",
          abreast, ", not ", shape);
  const profile::Span span("token_pool");
  Var z = t.output({shape[0] / abreast, abreast * shape[2]}, t.wants_grad({x, scores}));
  const Tensor weights = t.keep({shape[0], shape[1]}, t.real_dtype());
  ops::token_pool_forward(t.stream(), z.value(), weights, x.value(), scores ? scores.value() : Tensor{});
  t.record("token_pool", z, {}, [=, &t] {
    ops::token_pool_backward(t.stream(), t.grad_of(x), t.grad_of(scores), z.grad(), z.value(), weights, x.value());
  });
  return z;
}

RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta, Device device) {
  require(head_width % 2 == 0, "rotary positions: the head width must be even, not ", head_width);
  const Shape shape{positions, head_width / 2};
  RopeTable table{OwnedTensor(dtype, shape, device), OwnedTensor(dtype, shape, device)};
  ops::rope_table(table.cos, table.sin, theta);
  return table;
}

}  // namespace lockstep
