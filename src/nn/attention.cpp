#include "lockstep/nn/attention.hpp"

#include "lockstep/base/profile.hpp"

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

}  // namespace lockstep
