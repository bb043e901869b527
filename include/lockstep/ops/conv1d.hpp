#pragma once
#include "lockstep/ops/activation.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// One-channel convolution along a row, zero-padded to its own length, with bias and activation, flattened
/// channel-major.
///
///   a_m,c,i = bias_c + sum_j weight_c,0,j x_m,(i + j - K/2),   y = f(a),   derivative = f'(a)
///   (x is 0 outside 0..T-1)
///
/// A cross-correlation, as in PyTorch's Conv1d(1, C, K, padding = K/2).
///
/// shapes   x (..., T) seen as M rows; weight (C, 1, K), K odd; bias (C) or empty; y (..., C T), a_m,c,i at
///          column c T + i; derivative as y, or empty
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with gradients of weight and bias in f32
/// errors   Error naming the shapes if they do not fit or K is even
void conv1d_forward(Stream&, const Tensor& y, const Tensor& derivative, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, Activation activation);
/// The gradients, with da = dy derivative (da = dy when derivative is empty). dy is overwritten with da. An empty
/// target is not computed.
void conv1d_backward(Stream&, Target dx, Target dweight, Target dbias, const Tensor& dy, const Tensor& derivative,
                     const Tensor& x, const Tensor& weight);

}  // namespace lockstep::ops
