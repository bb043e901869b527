#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Normalises each row to zero mean and unit variance, then scales and shifts it.
///
///   y_ic = (x_ic - m_i) s_i gamma_c + beta_c,   m_i = mean_c x_ic,   s_i = 1/sqrt(mean_c (x_ic - m_i)^2 + eps)
///
/// Two passes: the variance is computed from centred values, so a large mean costs no digits. Row i of y depends on row
/// i of x alone, in every bit.
///
/// shapes   x, y (..., C) seen as N rows; gamma, beta (C); mean, rstd (N), kept for the backward, or both empty. y may
///          be x
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with mean, rstd and the gradients of gamma and beta in f32
/// errors   Error naming the shapes if they do not fit
/// source   Ba, Kiros, Hinton 2016, arXiv:1607.06450
void layernorm_forward(Stream&, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& gamma, const Tensor& beta, double eps);

/// The gradients. With h_ic = (x_ic - m_i) s_i and a_ic = dy_ic gamma_c:
///
///   dx_ic (+)= s_i (a_ic - mean_c a_ic - h_ic mean_c (a_ic h_ic)),   dgamma_c (+)= sum_i dy_ic h_ic,
///   dbeta_c (+)= sum_i dy_ic
///
/// An empty target is not computed; dgamma and dbeta are both present or both empty. Then, for the operation that made
/// x:
///
///   derivative_ic *= dx_ic (unless empty),   sums_c (+)= sum_i of derivative_ic, or of dx_ic if that is empty
///
/// with the complete dx, which must then be present. Sums over rows run in ascending order within blocks of kTnRows
/// rows (gemm.hpp), block after block.
void layernorm_backward(Stream&, Target dx, Target dgamma, Target dbeta, const Tensor& dy, const Tensor& x,
                        const Tensor& mean, const Tensor& rstd, const Tensor& gamma, const Tensor& derivative = {},
                        Target sums = {});

}  // namespace lockstep::ops
