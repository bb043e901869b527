#include "lockstep/nn/attention.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"

namespace lockstep {

namespace {

Tensor value_of(Var v) { return v ? v.value() : Tensor{}; }

/// k and v are empty if q holds all three.
Var attend(Tape& t, Var q, Var k, Var v, const AttentionOptions& options) {
  const Shape& shape = q.shape();
  require(shape.rank() == 3, "attention: the input must be (B, T, columns), not ", shape);
  const profile::Span span("attention");
  Var y = t.output({shape[0], shape[1], k ? shape[2] : shape[2] / 3}, t.wants_grad({q, k, v}));
  const Tensor lse = y.wants_grad() ? t.keep({shape[0], options.heads, shape[1]}, t.real_dtype()) : Tensor{};
  ops::attention_forward(t.stream(), y.value(), lse, {q.value(), value_of(k), value_of(v)}, options);
  t.record("attention", y, {}, [=, &t] {
    ops::attention_backward(t.stream(), {t.grad_of(q), t.grad_of(k), t.grad_of(v)}, y.grad(), y.value(), lse,
                            {q.value(), value_of(k), value_of(v)}, options);
  });
  return y;
}

}  // namespace

Var attention(Tape& t, Var q, Var k, Var v, const AttentionOptions& options) { return attend(t, q, k, v, options); }
Var attention(Tape& t, Var qkv, const AttentionOptions& options) { return attend(t, qkv, {}, {}, options); }

}  // namespace lockstep
