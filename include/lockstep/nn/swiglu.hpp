#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// y = silu(x Wg^T) * (x Wu^T), weight = [Wg; Wu] (2I, K), see ops/swiglu.hpp. shapes  x (..., K) -> (..., I)
Var swiglu(Tape& tape, Var x, const Param& weight);

}  // namespace lockstep
