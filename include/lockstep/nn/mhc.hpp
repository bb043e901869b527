#pragma once
#include <cstdint>
#include <string>

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Manifold-constrained hyper-connections: n residual streams X (N, n, C) that each sub-layer F reads from and writes to,
///
///   r      = vec(X) / sqrt(mean(vec(X)^2) + 1e-8)
///   H_pre  = sigmoid(alpha_pre W_pre r + b_pre)                            (n)
///   H_post = 2 sigmoid(alpha_post W_post r + b_post)                       (n)
///   H_res  = SK(clamp(alpha_res W_res r + b_res, -10, 10))                 (n, n), to stream m from stream s
///   u      = sum_s H_pre[s] X[s],   y = F(u),   X'[m] = sum_s H_res[m, s] X[s] + H_post[m] y
///
/// SK: exponentials, then `iterations` times columns and then rows divided by their sums, so that rows sum to 1.
/// source  mHC: arXiv:2512.24880; initial values: the static part of hyper-connections, arXiv:2409.19606
struct MhcSite {
  const Param *alpha_pre = nullptr, *alpha_post = nullptr, *alpha_res = nullptr;  ///< scalars
  Linear phi_pre, phi_post, phi_res;  ///< weights (n, n C), (n, n C), (n n, n C); biases b
  std::int64_t iterations = 20;
};

struct MhcShape {
  std::int64_t streams = 4, columns = 0;
  std::int64_t iterations = 20;
  double gate = 0.01;  ///< initial alpha
};

/// Registers `<name>.alpha_{pre,post,res}` and `<name>.phi_{pre,post,res}.{weight,bias}`. Site k of a network, counted
/// from 0 over all its sub-layers, at first reads stream k mod n, writes to all, and mixes hardly at all.
MhcSite add_mhc_site(ParamStore& params, const std::string& name, const MhcShape& shape, std::int64_t site);

/// What passes through a site, for those who compare values one by one.
struct MhcTrace {
  Var maps;     ///< (N, n + n + n n): H_pre, H_post, H_res
  Var u, y, x;  ///< x: the streams behind the site
};

/// What a site reads from the streams, and its maps (N, n + n + n n), see ops/hyper_connections.hpp.
struct MhcRead {
  Var u;  ///< (N, C)
  Var maps;
};
MhcRead mhc_read(Tape& tape, Var x, const MhcSite& site);
Var mhc_write(Tape& tape, Var x, const MhcRead& read, Var y);

/// One site around a sub-layer.
template <class Layer>
Var mhc(Tape& tape, Var x, const MhcSite& site, const Layer& layer, MhcTrace* trace = nullptr) {
  const MhcRead read = mhc_read(tape, x, site);
  const Var y = layer(read.u);
  const Var out = mhc_write(tape, x, read, y);
  if (trace) *trace = {read.maps, read.u, y, out};
  return out;
}

/// n copies of x: (N, C) -> (N, n, C), and the sum of the streams: (N, n, C) -> (N, C).
Var copy_to_streams(Tape& tape, Var x, std::int64_t streams);
Var sum_streams(Tape& tape, Var x);

}  // namespace lockstep
