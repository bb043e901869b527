#pragma once
#include "lockstep/models/emulator.hpp"

namespace lockstep {

/// Emulator::forward as one node of the tape: tiles of nodes go through all layers inside the caches, forward and backward.
/// shapes  z (N, n_in) -> (N, n_out).  dtypes  those of the tape and the parameters, which are equal
Var fused_forward(Tape& tape, const Emulator& emulator, const Tensor& z);

}  // namespace lockstep
