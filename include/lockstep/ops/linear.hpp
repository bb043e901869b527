#pragma once
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A fully connected layer, its activation and dropout, and a residual in one pass.
///
///   a_mn = bias_n + sum_k x_mk weight_nk,   y = residual + drop(f(a)),   derivative = drop(f'(a))
///
/// drop() is that of ops/dropout.hpp, with the same mask for both; without a rate it changes nothing.
///
/// Row m of y and of derivative depends on row m of x alone, in every bit, not on the other rows of the call (see
/// gemm.hpp).
///
/// shapes   x (..., K) seen as M rows; weight (N, K); bias (N) or empty; y (..., N); residual as y, or empty;
///          derivative as y, or empty when no backward follows or it is 1 everywhere
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with gradients of weight and bias in f32
/// errors   Error naming the shapes if they do not fit
void linear_forward(Stream&, const Tensor& y, const Tensor& derivative, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, Activation activation, const Dropout& dropout = {}, const SampleRows& rows = {},
                    const Tensor& residual = {});

/// The gradients. With da = dy derivative (da = dy when derivative is empty):
///
///   dx_mk (+)= sum_n da_mn weight_nk,   dweight_nk (+)= sum_m da_mn x_mk,   dbias_n (+)= sum_m da_mn
///
/// An empty target is not computed. dy is overwritten with da. Sums over m run in ascending order within blocks of
/// kTnRows rows.
void linear_backward(Stream&, Target dx, Target dweight, Target dbias, const Tensor& dy, const Tensor& derivative,
                     const Tensor& x, const Tensor& weight);

}  // namespace lockstep::ops
