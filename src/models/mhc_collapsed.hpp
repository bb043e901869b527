#pragma once
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// The site of hyper-connections that public code computes: n equal copies of x are mixed with doubly stochastic
/// weights, a multiple of f is added to each, and all are summed, which amounts to
///
///   y = n x + g f,   g = sum_m 2 sigmoid(alpha (W_m r + b_m)),   r = n copies of x / (rms(x) + 1e-12)
///
/// shapes   x, f, y (N, C); alpha (); phi: weight (n, n C), bias (n); post (N, n), H_post, or empty
/// source   baka-world/SASRec.pytorch, its ManifoldHyperConnection with everything that cancels left out
Var mhc_collapsed(Tape& tape, Var x, Var f, const Param& alpha, const Linear& phi, Tensor post = {});

}  // namespace lockstep
