#pragma once
#include <array>
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {

/// y = block(x) whose inner values are not kept: the backward pass computes them again. The same bits as block(x), since
/// what is random is a function of where it is drawn; the memory of one block at a time; its forward pass twice.
///
/// block(tape, inputs) -> Var, of the shape of inputs[0]; it takes its inputs from the span, empty ones included, and
/// everything else by value: it is copied into the tape's arena and outlives the call. `params` are the parameters that
/// it uses.
/// source  Chen et al. 2016, arXiv:1604.06174
template <class Block>
Var recompute(Tape& t, const std::array<Var, 3>& inputs, std::span<const Param* const> params, const Block& block) {
  constexpr std::size_t kInputs = 3;
  Var y = t.output(inputs[0].shape(), t.mode() != Tape::Mode::forward);  // its parameters want gradients
  {
    const ArenaScope scope(t.arena());
    Tape quiet(t.stream(), t.arena(), t.dtype(), Tape::Mode::forward);
    std::array<Var, kInputs> constants;
    for (std::size_t i = 0; i < kInputs; ++i)
      if (inputs[i]) constants[i] = quiet.constant(inputs[i].value());
    const Var value = block(quiet, std::span<const Var, kInputs>(constants));
    require(value.shape() == y.shape(), "recompute: the block's result is ", value.shape(), ", its input ", y.shape());
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
