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

/// The memory of a norm's results, and the terms of its sum.
struct NormTo {
  Tensor y = {};       ///< memory of y, which may be that of x if the tape records nothing; empty: the tape's
  Var a = {}, b = {};  ///< with a: also sum = (y + a) + b in the same pass; b may be empty
  Tensor sum = {};     ///< memory of the sum; empty: the tape's
};
struct Normed {
  Var y, sum;  ///< sum is empty without NormTo::a
};

/// y = x / rms(x) for each row, see ops/rmsnorm.hpp. shapes  all equal
Normed rmsnorm(Tape& tape, Var x, double eps = 1e-5, const NormTo& to = {});

}  // namespace lockstep
