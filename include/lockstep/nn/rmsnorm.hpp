#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// y = (x + branch) / rms(x + branch) for each row, see ops/rmsnorm.hpp. `into` is the memory of y, which may be that of x
/// if the tape records nothing; empty: the tape's. shapes  x, branch, y equal
Var rmsnorm(Tape& tape, Var x, Var branch, double eps = 1e-5, const Tensor& into = {});

}  // namespace lockstep
