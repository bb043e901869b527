#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A gated layer: both products, the SiLU of the gate and the multiplication. Works block of rows by block of rows, so
/// gate and up are written to memory only when a backward needs them.
///
///   g_mi = sum_k x_mk weight_ik,   u_mi = sum_k x_mk weight_(I+i)k,   y_mi = g_mi sigmoid(g_mi) u_mi
///
/// Row m of y depends on row m of x alone, in every bit, not on the other rows of the call (see gemm.hpp).
///
/// shapes   x (..., K) seen as M rows; weight (2I, K), gate rows first; y (..., I); gate_up (M, 2I) = [g | u], or empty
///          when no backward follows
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with the gradient of weight in f32
/// errors   Error naming the shapes if they do not fit
/// source   Shazeer 2020, arXiv:2002.05202, eq. 6 (without the last product)
void swiglu_forward(Stream&, const Tensor& y, const Tensor& gate_up, const Tensor& x, const Tensor& weight);

/// The gradients of x and weight. gate_up is overwritten with its gradient. An empty target is not computed.
void swiglu_backward(Stream&, Target dx, Target dweight, const Tensor& dy, const Tensor& gate_up, const Tensor& x,
                     const Tensor& weight);

/// A gated layer of rows that are scaled to a root mean square of 1 first:
///
///   rstd_m = 1/sqrt(mean_k x_mk^2 + eps),   z_mk = x_mk rstd_m,   y = swiglu(z)
///
/// On a GPU the product reads x, and the pass that combines gate and up scales the rows of the product. The result is
/// the same except for rounding, and saves a launch. gate_up is only for the backward.
///
/// shapes   as swiglu_forward; z as x; rstd (M), empty with gate_up
/// source   ops/rmsnorm.hpp
void normed_swiglu_forward(Stream&, const Tensor& y, const Tensor& z, const Tensor& rstd, const Tensor& gate_up,
                           const Tensor& x, const Tensor& weight, double eps);

/// The gradients of x and weight. dz is the gradient of z except the part through y. dz and gate_up are overwritten. An
/// empty target is not computed.
void normed_swiglu_backward(Stream&, Target dx, Target dweight, const Tensor& dy, const Tensor& dz,
                            const Tensor& gate_up, const Tensor& z, const Tensor& rstd, const Tensor& x,
                            const Tensor& weight);

}  // namespace lockstep::ops
