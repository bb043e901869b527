#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The softmax cross-entropy with smoothed labels, summed over rows, and its gradient, in one pass.
///
///   q_nk = (1 - smoothing) [k = label_n] + smoothing / K,   p = softmax(x),   sum_n w_n (-sum_k q_nk log p_nk),
///   dx_nk = w_n (p_nk - q_nk)
///
/// loss receives the sum. Rows are added in f64, in an order that depends on their number alone.
///
/// shapes   loss (); x, dx (N, K), dx may be empty; labels, w (N), in host memory (pinned for a GPU); empty w: all 1
/// dtypes   x, dx f32 | f64, equal, or on a GPU x bf16 | f16 and dx f32; loss f32 | f64; labels i32; w f64
/// range    0 <= smoothing < 1
/// errors   Error naming the shapes if they do not fit, or the row whose label is not in 0..K-1
/// source   Szegedy et al. 2016, arXiv:1512.00567, section 7
void cross_entropy(Stream&, const Tensor& loss, const Tensor& dx, const Tensor& x, const Tensor& labels,
                   double smoothing, const Tensor& weights = {});

}  // namespace lockstep::ops
