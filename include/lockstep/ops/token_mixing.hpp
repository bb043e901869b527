#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Mixes the positions of each sequence with one gated layer for all channels, adds the result to the sequence and
/// scales each channel to a root mean square of 1 over the positions. The sequences are the right operands of the
/// products, so nothing is transposed.
///
///   g_bid = sum_t gate_up_it x_btd,   u_bid = sum_t gate_up_(I+i)t x_btd,   h_bid = g_bid sigmoid(g_bid) u_bid
///   v_btd = x_btd + sum_i down_ti h_bid,   rstd_bd = 1/sqrt(mean_t v_btd^2 + eps),   y_btd = v_btd rstd_bd
///
/// Sequence b of y depends on sequence b of x alone, in every bit. On a GPU the products' bits also depend on the shape
/// of the call (see gemm.hpp).
///
/// shapes   x, y (B, T, D); gate_up (2I, T), gate rows first; down (T, I); kept (B, 2I, D), g and u in an internal
///          order, and rstd (B, D), or both empty when no backward follows
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with rstd and gradients of weights in f32
/// errors   Error naming the shapes if they do not fit
/// source   the form `mlp_t` of Jolicoeur-Martineau 2025, arXiv:2510.04871, and of its public code, which transposes
void token_mixing_forward(Stream&, const Tensor& y, const Tensor& kept, const Tensor& rstd, const Tensor& x,
                          const Tensor& gate_up, const Tensor& down, double eps);

/// The gradients of x and both weights; dx may be empty, and dgate_up and ddown both. kept is overwritten.
/// Sums over channels and sequences run in ascending order within blocks of at least kTnRows (sequence, channel) pairs.
void token_mixing_backward(Stream&, Target dx, Target dgate_up, Target ddown, const Tensor& dy, const Tensor& y,
                           const Tensor& kept, const Tensor& rstd, const Tensor& x, const Tensor& gate_up,
                           const Tensor& down);

}  // namespace lockstep::ops
