#pragma once
#include <cstdint>
#include <string>

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/observer.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Manifold-constrained hyper-connections: n residual streams X (N, n, C) that each sub-layer F reads and writes,
///
///   r      = vec(X) / sqrt(mean(vec(X)^2) + 1e-8)
///   H_pre  = sigmoid(alpha_pre W_pre r + b_pre)                            (n)
///   H_post = 2 sigmoid(alpha_post W_post r + b_post)                       (n)
///   H_res  = SK(clamp(alpha_res W_res r + b_res, -10, 10))                 (n, n), to stream m from stream s
///   u      = sum_s H_pre[s] X[s],   y = F(u),   X'[m] = sum_s H_res[m, s] X[s] + H_post[m] y
///
/// SK exponentiates, then divides columns and then rows by their sums, `iterations` times, so that rows sum to 1.
///
/// source   mHC: arXiv:2512.24880; initial values: static hyper-connections, arXiv:2409.19606
struct MhcSite {
  const Param *alpha_pre = nullptr, *alpha_post = nullptr, *alpha_res = nullptr;  ///< scalars
  Linear phi_pre, phi_post, phi_res;  ///< weights (n, n C), (n, n C), (n n, n C); biases b
  std::int64_t iterations = 20;
  std::int64_t streams() const { return phi_pre.bias->shape.size(); }
};

struct MhcShape {
  std::int64_t streams = 4, columns = 0;
  std::int64_t iterations = 20;
  double gate = 0.01;  ///< initial alpha
};

/// Registers `<name>.alpha_{pre,post,res}` and `<name>.phi_{pre,post,res}.{weight,bias}`. `site` counts the sub-layers
/// of a network from 0. Initially, site k reads stream k mod n, writes to all streams and hardly mixes them.
///
/// errors   Error if the number of streams or iterations is out of range
MhcSite add_mhc_site(ParamStore& params, const std::string& name, const MhcShape& shape, std::int64_t site);

/// What a site makes of the streams X' after it; the last site of a network needs only their sum.
enum class MhcResult : std::uint8_t { streams, sum };

/// The input that a site reads from the streams, and its maps. See ops/hyper_connections.hpp.
struct MhcRead {
  Var u;     ///< (N, C)
  Var maps;  ///< (N, n + n + n n): H_pre, H_post, H_res; without H_res for equal streams
};
/// shapes   x (N, n, C), or (N, C) for n equal streams
MhcRead mhc_read(Tape& tape, Var x, const MhcSite& site);
/// X' of the formulas above. shapes  x (N, n, C), or (N, C) for n equal streams; y (N, C) -> (N, n, C) or, for their
/// sum, (N, C)
Var mhc_write(Tape& tape, Var x, const MhcRead& read, Var y, const MhcSite& site,
              MhcResult result = MhcResult::streams);

/// Copies x to n streams, (N, C) -> (N, n, C), and sums the streams, (N, n, C) -> (N, C).
Var copy_to_streams(Tape& tape, Var x, std::int64_t streams);
Var sum_streams(Tape& tape, Var x);

/// Applies a site around a sub-layer: X' of the formulas above. For an observer and on a GPU, whose kernels know n
/// streams only, equal streams are copied before and the sum is taken after the site. This differs by rounding alone:
/// in exact arithmetic the rows of H_res sum to 1, so equal streams keep their value and the gradient of H_res is 0,
/// and a sum of streams does not depend on the order of its terms.
///
/// shapes   x (N, n, C), or (N, C) for n equal streams -> (N, n, C) or, for their sum, (N, C)
/// watch    receives `name` + maps (as in MhcRead), u, y, and X: the streams after the site
template <class Layer>
Var mhc(Tape& tape, Var x, const MhcSite& site, const Layer& layer, MhcResult result = MhcResult::streams,
        const Observer* watch = nullptr, const std::string& name = "") {
  const bool general = watch != nullptr || x.value().device().is_cuda();
  if (general && x.shape().rank() == 2) x = copy_to_streams(tape, x, site.streams());
  const MhcRead read = mhc_read(tape, x, site);
  const Var y = layer(read.u);
  const Var out = mhc_write(tape, x, read, y, site, general ? MhcResult::streams : result);
  if (watch)
    for (const auto& [part, value] : {std::pair{"maps", read.maps}, {"u", read.u}, {"y", y}, {"X", out}})
      (*watch)(name + part, value.value());
  return general && result == MhcResult::sum ? sum_streams(tape, out) : out;
}

}  // namespace lockstep
