#include "lockstep/nn/token_pool.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/token_pool.hpp"

namespace lockstep {

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

}  // namespace lockstep
