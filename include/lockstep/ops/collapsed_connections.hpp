#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// One site of hyper-connections in the simplified form of a public implementation: n equal copies of x are mixed with
/// doubly stochastic weights, a multiple of f is added to each, and the copies are summed. This reduces to
///
///   y_i = n x_i + g_i f_i,   g = sum_m 2 sigmoid(alpha (W_m r + b_m)),   r = n copies of x_i / (rms(x_i) + 1e-12)
///
/// shapes   x, f, y (N, C); alpha (); weight W (n, n C); bias (n)
/// dtypes   f32 | f64, on a GPU also bf16 | f16, all equal; the gradients of the site are f32 for halves
/// errors   Error naming the shapes if they do not fit
/// source   baka-world/SASRec.pytorch, ManifoldHyperConnection, with the terms that cancel left out
struct CollapsedConnection {
  Tensor alpha, weight, bias;
};
void collapsed_connection_forward(Stream&, const Tensor& y, const Tensor& x, const Tensor& f,
                                  const CollapsedConnection& site);
/// The gradients of x, f and the site. Gradients of the site are always added; any target may be empty. The norm has
/// derivative 0 at x = 0.
void collapsed_connection_backward(Stream&, Target dx, Target df, const CollapsedConnection& gradients,
                                   const Tensor& dy, const Tensor& x, const Tensor& f, const CollapsedConnection& site);

}  // namespace lockstep::ops
