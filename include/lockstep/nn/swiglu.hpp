#pragma once
#include <optional>

#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// A gated layer as a residual branch, with the norm before it:
///
///   y = z + (silu(z Wg^T) * (z Wu^T)) down^T,   z = x / rms(x) for each row with `norm_eps`, else x
///
/// gate_up = [Wg; Wu] (2I, K); see ops/swiglu.hpp, ops/rmsnorm.hpp. shapes  x, y (..., K); down (K, I)
Var gated_residual(Tape& tape, Var x, const Param& gate_up, const Param& down,
                   const std::optional<double>& norm_eps = {});

}  // namespace lockstep
