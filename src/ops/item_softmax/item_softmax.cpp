#include "lockstep/ops/item_softmax.hpp"

#include <algorithm>
#include <cmath>

#include "item_softmax_kernels.hpp"
#include "lockstep/ops/cast.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {
namespace {

/// Tokens and candidates of a tile: on the CPU its scores stay in the second-level cache; on a GPU they fill it.
struct TileSize {
  std::int64_t tokens, candidates;
};
TileSize tile_size(Device device) { return device.is_cuda() ? TileSize{8192, 4096} : TileSize{512, 256}; }

/// The parts of the scratch memory.
struct Scratch {
  TileSize tile;
  Tensor scores;         ///< (tokens, candidates) of a tile
  Tensor gradient;       ///< of halves: (tokens, C), summed over the tiles of candidates
  Tensor probabilities;  ///< of halves: a tile, or the sum, in their dtype

  Scratch(const Tensor& memory, Device device, DType dtype, std::int64_t tokens, std::int64_t candidates,
          std::int64_t columns)
      : tile(tile_size(device)) {
    tile = {std::min(tile.tokens, tokens), std::min(tile.candidates, candidates)};
    auto* at = static_cast<std::byte*>(memory.raw());
    const auto take = [&](Shape shape, DType type) {
      const Tensor part(at, type, shape, device);
      at += part.size_bytes();
      return part;
    };
    scores = take({tile.tokens, tile.candidates}, memory.dtype());
    if (!is_half(dtype)) return;
    gradient = take({tile.tokens, columns}, memory.dtype());
    probabilities = take({tile.tokens, std::max(tile.candidates, columns)}, dtype);
  }
};

void check(const char* what, const Tensor& state, const Tensor& scratch, const Tensor& f, const Tensor& table,
           const SoftmaxCandidates& c, std::span<const std::int32_t> pos) {
  const std::int64_t k = c.rows.rows();
  require(f.rows() > 0 && k > 0 && f.rows() == static_cast<std::int64_t>(pos.size()) &&
              table.columns() == f.columns() && c.rows.columns() == f.columns() && (!c.ids || c.ids.size() == k) &&
              (!c.bias || c.bias.size() == k) && state.shape() == Shape{3, f.rows()} &&
              scratch.size() >= softmax_scratch(f.device(), is_half(f.dtype()), f.rows(), k, f.columns()),
          what, ": f is ", f.shape(), ", the table ", table.shape(), ", candidates ", c.rows.shape(), " with ",
          c.ids.size(), " ids and ", c.bias.size(), " biases, state ", state.shape(), ", scratch ", scratch.shape(),
          ", there are ", pos.size(), " items");
}

/// Calls f(tile, tokens, rows) for each tile, with its part of the features and of the candidates' rows.
template <class R, class F>
void for_tiles(const TileSize& size, const Tensor& f, const SoftmaxCandidates& c, std::span<const std::int32_t> pos,
               const F& work) {
  for (std::int64_t m = 0; m < f.rows(); m += size.tokens) {
    const std::int64_t tokens = std::min(size.tokens, f.rows() - m);
    for (std::int64_t j = 0; j < c.rows.rows(); j += size.candidates) {
      const std::int64_t candidates = std::min(size.candidates, c.rows.rows() - j);
      work(ScoreTile<R>{.tokens = tokens,
                        .candidates = candidates,
                        .first = j,
                        .pos = pos.data() + m,
                        .ids = c.ids ? c.ids.data<std::int32_t>() + j : nullptr,
                        .bias = c.bias ? c.bias.data<R>() + j : nullptr},
           m);
    }
  }
}

/// The rows of the state: logarithm of the sum of exponentials (until the last tile the largest score), that sum, and
/// the slope by the next item's score (at first the score).
template <class R>
struct State {
  R *lse, *sum, *slope;
  explicit State(const Tensor& state)
      : lse(state.data<R>()), sum(lse + state.shape()[1]), slope(sum + state.shape()[1]) {}
};

}  // namespace

std::int64_t softmax_scratch(Device device, bool halves, std::int64_t tokens, std::int64_t candidates,
                             std::int64_t columns) {
  const TileSize most = tile_size(device);
  const std::int64_t rows = std::min(most.tokens, tokens), scores = rows * std::min(most.candidates, candidates);
  return halves ? scores + rows * columns + (std::max(scores, rows * columns) + 1) / 2 : scores;
}

void item_softmax_forward(Stream& stream, const Tensor& loss, const Tensor& state, const Tensor& scratch,
                          const Tensor& f, const Tensor& table, const SoftmaxCandidates& c,
                          std::span<const std::int32_t> pos) {
  check("item_softmax", state, scratch, f, table, c, pos);
  const Scratch parts(scratch, f.device(), f.dtype(), f.rows(), c.rows.rows(), f.columns());
  const std::int64_t tokens = f.rows();
  row_scores(stream, state.slice(2, 1).reshaped({tokens, 1}), f, table, pos);
  const auto scores_of = [&](const auto& tile, std::int64_t m) {
    const Tensor scores = Tensor(parts.scores.raw(), state.dtype(), {tile.tokens, tile.candidates}, f.device());
    gemm_nt(stream, {scores}, f.slice(m, tile.tokens), c.rows.slice(tile.first, tile.candidates));
    return scores;
  };
  if (on_gpu(state, [&]<class R>() {
        if constexpr (std::is_same_v<R, real_t<R>>) {
          const State<R> of(state);
          cuda::item_softmax_start(stream, tokens, of.lse);
          for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
            cuda::item_softmax_update(stream, tile, scores_of(tile, m).template data<R>(), of.lse + m, of.sum + m);
          });
          cuda::item_softmax_finish(stream, tokens, loss, of.lse, pos.data());
        }
      }))
    return;
  visit_float(state.dtype(), [&]<class R>() {
    const State<R> of(state);
    std::copy_n(of.slope, tokens, of.lse);
    std::fill_n(of.sum, tokens, R{1});
    for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
      cpu::active_item_softmax_kernels<R>().update(tile, scores_of(tile, m).template data<R>(), of.lse + m, of.sum + m);
    });
    double total = 0;
    for (std::int64_t m = 0; m < tokens; ++m) {
      if (pos[static_cast<std::size_t>(m)] == 0) {
        of.slope[m] = 0;
        continue;
      }
      of.lse[m] += std::log(of.sum[m]);
      const R lost = of.lse[m] - of.slope[m];
      total += static_cast<double>(lost);
      of.slope[m] = std::expm1(-lost);
    }
    *loss.data<R>() = static_cast<R>(total);
  });
}

void item_softmax_backward(Stream& stream, Target df, Target drows, const Tensor& dtable, const Tensor& dloss,
                           const Tensor& state, const Tensor& scratch, const Tensor& f, const Tensor& table,
                           const SoftmaxCandidates& c, std::span<const std::int32_t> pos) {
  check("item_softmax backward", state, scratch, f, table, c, pos);
  require((!df || df.tensor.shape() == f.shape()) && (!drows || drows.tensor.shape() == c.rows.shape()),
          "item_softmax backward: f is ", f.shape(), ", df ", df.tensor.shape(), ", candidates ", c.rows.shape(),
          ", their gradient ", drows.tensor.shape());
  const bool halves = is_half(f.dtype());
  const Scratch parts(scratch, f.device(), f.dtype(), f.rows(), c.rows.rows(), f.columns());
  const auto run = [&]<class T>() {
    using R = real_t<T>;
    const R* lse = state.data<R>();
    for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
      const auto part = [&](const Tensor& memory, Shape shape) {
        return Tensor(memory.raw(), memory.dtype(), shape, f.device());
      };
      const Tensor scores = part(parts.scores, {tile.tokens, tile.candidates});
      const Tensor p = halves ? part(parts.probabilities, scores.shape()) : scores;
      const Tensor x = f.slice(m, tile.tokens), w = c.rows.slice(tile.first, tile.candidates);
      gemm_nt(stream, {scores}, x, w);
      if constexpr (kHasCuda)
        if (f.device().is_cuda())
          cuda::item_softmax_probabilities<T>(stream, tile, p.data<T>(), scores.data<R>(), lse + m, dloss.data<R>());
      if constexpr (std::is_same_v<R, T>)
        if (!f.device().is_cuda())
          cpu::active_item_softmax_kernels<R>().probabilities(tile, scores.data<R>(), lse + m, *dloss.data<R>());
      if (drows) gemm_tn(stream, {drows.tensor.slice(tile.first, tile.candidates), drows.accumulate || m > 0}, p, x);
      if (!df) return;
      const Tensor to = df.tensor.slice(m, tile.tokens);
      if (!halves) return gemm_nn(stream, {to, df.accumulate || tile.first > 0}, p, w);
      const Tensor sum = part(parts.gradient, to.shape()), rounded = part(parts.probabilities, to.shape());
      gemm_nn(stream, {sum, tile.first > 0}, p, w);
      if (tile.first + tile.candidates < c.rows.rows()) return;
      cast(stream, rounded, sum);
      scale(stream, {to, df.accumulate}, rounded, 1);
    });
  };
  if (!on_gpu(f, run)) visit_float(f.dtype(), run);
  sampled_cross_entropy_backward(stream, {df.tensor, true}, dtable, dloss, state.slice(2, 1), f, table, pos, {});
}

}  // namespace lockstep::ops
