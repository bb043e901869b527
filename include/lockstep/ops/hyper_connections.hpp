#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// One place where a sub-layer reads from and writes to n residual streams: n gates to read, n to write and an n by n
/// mixing matrix for each token, from that token's streams.
struct HyperConnection {
  static constexpr std::int64_t kMostStreams = 8, kMostSteps = 64;
  Tensor alpha_pre, alpha_post, alpha_res;     ///< scalars, shape ()
  Tensor weight_pre, weight_post, weight_res;  ///< (n, n C), (n, n C), (n n, n C)
  Tensor bias_pre, bias_post, bias_res;        ///< (n), (n), (n n)
  std::int64_t sinkhorn_steps = 20;
  double eps = 1e-8;
  std::int64_t streams() const { return bias_pre.size(); }
  std::int64_t maps() const { return streams() * (2 + streams()); }
};
/// Gradients of its parameters, always added to; an empty one is left out.
struct HyperConnectionGradients {
  Target alpha_pre, alpha_post, alpha_res, weight_pre, weight_post, weight_res, bias_pre, bias_post, bias_res;
};

/// The maps of each token.
///
///   r = vec(X) / sqrt(mean(vec(X)^2) + eps)
///   Hpre = sigmoid(alpha_pre Wpre r + b_pre),   Hpost = 2 sigmoid(alpha_post Wpost r + b_post)
///   Hres = SK(clamp(alpha_res Wres r + b_res, -10, 10)),   SK(Z): M = exp Z; sinkhorn_steps times each column, then
///          each row is divided by its sum
///
/// shapes   x (N, n C), stream by stream; maps (N, n + n + n n): Hpre, Hpost, Hres by rows (target, source);
///          raw (N, n + n + n n) and scale (N) are kept for the backward: the products W r, and 1/sqrt(...)
/// dtypes   x and parameters f32 | f64, on a GPU also bf16 | f16; maps, raw, scale and all gradients but dx real: f32 for
///          the halves, in which rows and columns would no longer sum to one
/// errors   Error naming the shapes if they do not fit, or if there are more streams or steps than above
/// source   arXiv:2512.24880, eq. 7-9
void hyper_maps_forward(Stream&, const Tensor& maps, const Tensor& raw, const Tensor& scale, const Tensor& x,
                        const HyperConnection& h);
/// dmaps is overwritten. dx is always added to: reading and writing store it first. The gradient runs through all Sinkhorn steps, which are computed again.
void hyper_maps_backward(Stream&, Target dx, const HyperConnectionGradients& gradients, const Tensor& dmaps,
                         const Tensor& raw, const Tensor& scale, const Tensor& x, const HyperConnection& h);

/// u = sum_s Hpre_s X_s. shapes  u (N, C); x (N, n C); maps (N, 2 n + n n)
void hyper_read_forward(Stream&, const Tensor& u, const Tensor& x, const Tensor& maps, std::int64_t streams);
/// Of maps only the columns of Hpre get a gradient; when stored, the others become 0.
void hyper_read_backward(Stream&, Target dx, Target dmaps, const Tensor& du, const Tensor& x, const Tensor& maps,
                         std::int64_t streams);

/// X'_m = sum_s Hres_ms X_s + Hpost_m y. shapes  out, x (N, n C); maps (N, 2 n + n n); y (N, C)
void hyper_write_forward(Stream&, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                         std::int64_t streams);
void hyper_write_backward(Stream&, Target dx, Target dmaps, Target dy, const Tensor& dout, const Tensor& x,
                          const Tensor& maps, const Tensor& y, std::int64_t streams);

}  // namespace lockstep::ops
