#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// One site where a sub-layer reads from and writes to n residual streams. For each token its streams determine n gates
/// for reading, n for writing, and an n by n mixing matrix.
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
/// The destinations of the gradients of the parameters. Gradients are always added; an empty one is not computed.
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
/// Before a network's first site all streams are equal. On a CPU x may then hold one of them, and maps lack Hres: its
/// rows sum to 1, so it leaves equal streams as they are, and its gradient is 0.
///
/// shapes   x (N, n C), stream by stream; maps (N, n + n + n n): Hpre, Hpost, then Hres as (target, source); for equal
///          streams x (N, C), maps (N, n + n). raw like maps, the products W r, and scale (N), the value of
///          1/sqrt(...), are stored for the backward
/// dtypes   x and parameters f32 | f64, on a GPU also bf16 | f16. maps, raw, scale and all gradients except dx have the
///          same type, f32 for halves: halves would break the row and column sums of 1
/// errors   Error naming the shapes if they do not fit, or if there are more than kMostStreams streams or kMostSteps
///          steps
/// source   arXiv:2512.24880, eq. 7-9
void hyper_maps_forward(Stream&, const Tensor& maps, const Tensor& raw, const Tensor& scale, const Tensor& x,
                        const HyperConnection& h);
/// The gradients of the maps; those of weight_res, bias_res and alpha_res stay as they are without Hres. dmaps is
/// overwritten. The Sinkhorn steps are recomputed, and the gradient runs through all of them.
void hyper_maps_backward(Stream&, Target dx, const HyperConnectionGradients& gradients, const Tensor& dmaps,
                         const Tensor& raw, const Tensor& scale, const Tensor& x, const HyperConnection& h);

/// The input of the sub-layer: u = sum_s Hpre_s X_s.
///
/// shapes   u (N, C); x (N, n C); maps (N, 2 n + n n); for equal streams x (N, C), maps (N, 2 n)
/// errors   Error naming the shapes if they do not fit
void hyper_read_forward(Stream&, const Tensor& u, const Tensor& x, const Tensor& maps, std::int64_t streams);
/// The gradients of x and of the columns Hpre of maps. When dmaps is stored, its other columns become 0.
void hyper_read_backward(Stream&, Target dx, Target dmaps, const Tensor& du, const Tensor& x, const Tensor& maps,
                         std::int64_t streams);

/// The streams after the sub-layer: X'_m = sum_s Hres_ms X_s + Hpost_m y. On a CPU, out may be their sum over m.
///
/// shapes   out (N, n C), or (N, C) for the sum; x (N, n C); maps (N, 2 n + n n); y (N, C); for equal streams x (N, C),
///          maps (N, 2 n), out (N, n C)
/// errors   Error naming the shapes if they do not fit
void hyper_write_forward(Stream&, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                         std::int64_t streams);
/// The gradients of x, y and of the columns Hres and Hpost of maps. When dmaps is stored, its other columns become 0.
void hyper_write_backward(Stream&, Target dx, Target dmaps, Target dy, const Tensor& dout, const Tensor& x,
                          const Tensor& maps, const Tensor& y, std::int64_t streams);

}  // namespace lockstep::ops
