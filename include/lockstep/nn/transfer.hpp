#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Converts host values in the tape's real_dtype() to the tape's device and dtype(). The result is valid until the
/// arena's reset; on the CPU it is `values` itself.
Tensor to_tape(Tape& tape, const Tensor& values);
/// Converts values in the tape's dtype() or real_dtype() to host memory and real_dtype(), complete on return.
Tensor to_host(Tape& tape, const Tensor& values);

}  // namespace lockstep
