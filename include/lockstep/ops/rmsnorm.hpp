#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A sum that a norm computes in the same pass: to = (y + a) + b. b may be empty. An empty `to` means no sum.
struct NormSum {
  Tensor to, a, b;
};

/// Scales each row to a root mean square of 1, without weights.
///
///   rstd_i = 1/sqrt(mean_c x_ic^2 + eps),   y_ic = x_ic rstd_i
///
/// Row i of y depends on row i of x alone, in every bit. y may be x.
///
/// shapes   x, y and the arrays of `sum` (..., C) seen as N rows; rstd (N), or empty when no backward follows
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with rstd in f32
/// errors   Error naming the shapes if they do not fit
/// source   Zhang, Sennrich 2019, arXiv:1910.07467, eq. 4, without gain
void rmsnorm_forward(Stream&, const Tensor& y, const Tensor& rstd, const Tensor& x, double eps,
                     const NormSum& sum = {});

/// The gradient dx_ic (+)= rstd_i (dy_ic - y_ic mean_c y_ic dy_ic). dx may be empty. dy may be the memory of dx if that
/// is stored.
void rmsnorm_backward(Stream&, Target dx, const Tensor& dy, const Tensor& y, const Tensor& rstd);

}  // namespace lockstep::ops
