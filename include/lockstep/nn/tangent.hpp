#pragma once
#include "lockstep/nn/linear.hpp"

/// Recorded operations of a linearised network, for losses on its Jacobian. Tangents pass through linear() and conv1d()
/// without bias, adjoints through linear_adjoint() and conv1d_adjoint(), and both through activation_tangent().
namespace lockstep {

/// x weight, the adjoint of linear() without bias. shapes  x (..., N) -> (..., K)
Var linear_adjoint(Tape& tape, Var x, const Param& weight);
/// The adjoint of conv1d() without bias. shapes  x (..., C T) -> (..., T)
Var conv1d_adjoint(Tape& tape, Var x, const Param& weight);
/// K directions s multiplied by the slope at a, with gradients of both: t_kj = s_kj f'(a_j).
///
/// shapes   s (K N, C), a (N, C) -> (K N, C)
Var activation_tangent(Tape& tape, Var s, Var a, Activation activation);

}  // namespace lockstep
