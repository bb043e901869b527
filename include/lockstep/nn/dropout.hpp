#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/sample_rows.hpp"

namespace lockstep {

using ops::Dropout;
using ops::SampleRows;

/// Dropout, see ops/dropout.hpp; x itself if the rate is 0. The backward draws the mask again instead of storing it.
Var dropout(Tape& tape, Var x, const Dropout& dropout, const SampleRows& rows);

}  // namespace lockstep
