#pragma once
#include <array>
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {

/// y = block(x) without storing the inner values; the backward pass computes them again. The bits equal those of
/// block(x), because a random draw depends only on seed, step, site and sample. Only one block's inner values are in
/// memory at a time, at the cost of a second forward pass.
///
/// block(tape, inputs) returns a Var of `shape`. It reads its inputs from the span, which includes empty
/// ones, and captures everything else by value, because the arena's copy of it outlives the call. `params` are the
/// parameters that the block uses.
///
/// errors   Error if the block's result has another shape
/// source   Chen et al. 2016, arXiv:1604.06174
template <class Block>
Var recompute(Tape& t, const Shape& shape, const std::array<Var, 3>& inputs, std::span<const Param* const> params,
              const Block& block) {
  constexpr std::size_t kInputs = 3;
  const profile::Span span("recompute");
  Var y = t.output(shape, t.mode() != Tape::Mode::forward);  // the parameters need gradients
  {
    const ArenaScope scope(t.arena());
    Tape quiet(t.stream(), t.arena(), t.dtype(), Tape::Mode::forward, nullptr, &t.host_arena());
    std::array<Var, kInputs> constants;
    for (std::size_t i = 0; i < kInputs; ++i)
      if (inputs[i]) constants[i] = quiet.constant(inputs[i].value());
    const Var value = block(quiet, std::span<const Var, kInputs>(constants));
    require(value.shape() == shape, "recompute: the result is ", value.shape(), ", must be ", shape);
    ops::scale(t.stream(), {y.value(), false}, value.value(), 1);
  }
  t.record("recompute", y, params, [=, &t] {
    std::array<Target, kInputs> to;
    for (std::size_t i = 0; i < kInputs; ++i) to[i] = t.grad_of(inputs[i]);
    const ArenaScope scope(t.arena());
    std::array<Var, kInputs> variables;
    for (std::size_t i = 0; i < kInputs; ++i)
      if (inputs[i]) variables[i] = t.variable(inputs[i].value());
    t.backward(block(t, std::span<const Var, kInputs>(variables)), y.grad());
    for (std::size_t i = 0; i < kInputs; ++i) {
      if (!to[i]) continue;
      if (variables[i].grad())
        ops::scale(t.stream(), to[i], variables[i].grad(), 1);
      else if (!to[i].accumulate)
        fill_zero(t.stream(), to[i].tensor);
    }
  });
  return y;
}

}  // namespace lockstep
