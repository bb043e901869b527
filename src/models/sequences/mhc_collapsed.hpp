#pragma once
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// A collapsed hyper-connection y = n x + g f, as the public code computes it; see ops/collapsed_connections.hpp.
/// shapes   x, f, y (N, C); alpha (); phi: weight (n, n C), bias (n)
Var mhc_collapsed(Tape& tape, Var x, Var f, const Param& alpha, const Linear& phi);

}  // namespace lockstep
