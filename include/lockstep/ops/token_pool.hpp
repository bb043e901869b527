#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A weighted mean of the tokens of each sequence. The weights are a softmax of scores, or all equal.
///
///   w_nt = exp(s_nt) / sum_u exp(s_nu),   z_nc = sum_t w_nt x_ntc;   without scores w_nt = 1/T
///
/// A sequence's result depends on that sequence alone, in every bit.
///
/// shapes   x (N, T, D); scores (N, T) or (N, T, 1), or empty; w (N, T); z (N, D) or the same elements in another shape
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with weights in f32
/// errors   Error naming the shapes if they do not fit
void token_pool_forward(Stream&, const Tensor& z, const Tensor& w, const Tensor& x, const Tensor& scores);

/// The gradients dx_ntc (+)= w_nt dz_nc and dscores_nt (+)= w_nt sum_c dz_nc (x_ntc - z_nc). An empty target is not
/// computed.
void token_pool_backward(Stream&, Target dx, Target dscores, const Tensor& dz, const Tensor& z, const Tensor& w,
                         const Tensor& x);

}  // namespace lockstep::ops
