#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// y = (x + branch) / rms(x + branch) for each row, see ops/rmsnorm.hpp. shapes  x, branch, y equal
Var rmsnorm(Tape& tape, Var x, Var branch, double eps = 1e-5);

}  // namespace lockstep
