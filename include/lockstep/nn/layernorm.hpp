#pragma once
#include <string>

#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Parameters of a layer norm: `<name>.weight` and `<name>.bias`, both (C).
struct LayerNorm {
  const Param* gamma = nullptr;
  const Param* beta = nullptr;
  double eps = 1e-5;
};

/// Registers `<name>.weight` (ones) and `<name>.bias` (zeros).
LayerNorm add_layernorm(ParamStore& params, const std::string& name, std::int64_t columns, double eps);

/// Layer norm, see ops/layernorm.hpp. shapes  x (..., C) -> (..., C)
Var layernorm(Tape& tape, Var x, const LayerNorm& norm);

}  // namespace lockstep
