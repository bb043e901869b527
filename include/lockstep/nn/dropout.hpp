#pragma once
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/sample_rows.hpp"

namespace lockstep {

using ops::Dropout;
using ops::SampleRows;

/// See ops/dropout.hpp; x itself when the rate is 0. Nothing is kept for the backward: it draws again.
Var dropout(Tape& tape, Var x, const Dropout& dropout, const SampleRows& rows);
/// x + dropout(y), the end of a residual branch.
Var add_dropped(Tape& tape, Var x, Var y, const Dropout& dropout, const SampleRows& rows);

}  // namespace lockstep
