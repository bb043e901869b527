#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

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
