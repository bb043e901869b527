#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Values of the host, of the tape's real_dtype(), as operations on the tape read them: on its device, of its dtype().
/// They last as long as the tape's arena; on the CPU they are `values` themselves.
Tensor to_tape(Tape& tape, const Tensor& values);
/// What operations computed, of the tape's dtype() or real_dtype(), as the host reads it: in its memory, of real_dtype(),
/// complete on return.
Tensor to_host(Tape& tape, const Tensor& values);

}  // namespace lockstep
