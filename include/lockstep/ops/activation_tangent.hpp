#pragma once
#include "lockstep/ops/activation.hpp"

namespace lockstep::ops {

/// The first and second derivative of an activation.
///
///   first_i = f'(x_i),   second_i = f''(x_i)   (0 where f has a kink)
///
/// shapes   first, second, x equal
/// dtypes   as activation_forward
/// errors   Error naming the shapes if they differ
void activation_slopes(Stream&, const Tensor& first, const Tensor& second, const Tensor& x, Activation activation);
/// Multiplies K directions per element by the derivative: t_kj = s_kj first_j, stored, or added when t.accumulate.
///
/// shapes   t, s equal, K times the elements of first
/// dtypes   as activation_forward
/// errors   Error naming the shapes if they do not fit
void activation_tangent(Stream&, Target t, const Tensor& s, const Tensor& first);
/// The gradient of activation_tangent() with respect to the activation's argument: da_j (+)= second_j sum_k s_kj dt_kj.
/// The gradient with respect to s is activation_tangent(ds, dt, first).
///
/// shapes   da, second equal; dt, s equal, K times as many elements
void activation_tangent_backward(Stream&, Target da, const Tensor& dt, const Tensor& s, const Tensor& second);

}  // namespace lockstep::ops
