#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// x plus a gated layer across its positions, normalised per channel, see ops/token_mixing.hpp.
///
/// shapes  x (B, T, D), gate_up (2I, T), down (T, I) -> (B, T, D)
Var token_mixing(Tape& tape, Var x, const Param& gate_up, const Param& down, double eps = 1e-5);

}  // namespace lockstep
