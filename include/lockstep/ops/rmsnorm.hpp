#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Add a branch to its residual and scale each row to a root mean square of 1, in one pass, without weights.
///
///   v_ic = x_ic + branch_ic,   rstd_i = 1/sqrt(mean_c v_ic^2 + eps),   y_ic = v_ic rstd_i
///
/// Row i of y depends on row i of x and branch alone, in every bit. y may be x or branch.
///
/// shapes   x, branch, y (..., C) seen as N rows; an empty branch counts as zero; rstd (N), or empty when no backward
///          follows
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with rstd in f32
/// errors   Error naming the shapes if they do not fit
/// source   Zhang, Sennrich 2019, arXiv:1910.07467, eq. 4, without gain
void rmsnorm_forward(Stream&, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& branch, double eps);

/// The gradient dv_ic = rstd_i (dy_ic - y_ic mean_c y_ic dy_ic), which is both dx and dbranch. Either target may be
/// empty. dy may be the memory of a target that is stored.
void rmsnorm_backward(Stream&, Target dx, Target dbranch, const Tensor& dy, const Tensor& y, const Tensor& rstd);

}  // namespace lockstep::ops
