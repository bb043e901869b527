#include "lockstep/ops/item_softmax.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops {

/// A tile of scores: M tokens by K candidates, the first of which is candidate `first` of all.
template <class T>
struct ScoreTile {
  std::int64_t tokens, candidates, first;
  const std::int32_t* pos;  ///< (tokens)
  const std::int32_t* ids;  ///< (candidates), or null: candidate j is item first + j + 1
  const T* bias;            ///< (candidates), or null
};

namespace cpu {

template <class T>
struct ItemSoftmaxKernels {
  /// Updates each token's largest score and sum of exp(score - largest) with the tile. Overwrites the scores.
  void (*update)(const ScoreTile<T>& tile, T* scores, T* largest, T* sum);
  /// Replaces scores z by scale exp(z - lse), or 0 for the next item and for tokens without one.
  void (*probabilities)(const ScoreTile<T>& tile, T* scores, const T* lse, T scale);
  /// Adds a part's sums (n tokens) to `largest` and `sum`. Leaves out tokens without a next item.
  void (*merge)(std::int64_t n, const std::int32_t* pos, T* largest, T* sum, const T* part_largest, const T* part_sum);
};
LOCKSTEP_KERNELS(ItemSoftmaxKernels, item_softmax_kernels)

}  // namespace cpu
}  // namespace lockstep::ops

#ifdef LOCKSTEP_ISA
#include "ops/common/vecmath.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Calls f(offset, get, put, mask(v)) for each vector of a row. mask() replaces lanes past the end by the least value.
template <class T, class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t n, T least, const F& f) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t j = 0;
  for (; j + kL <= n; j += kL)
    f([j](const T* p) { return load(p + j); }, [j](T* p, Vec<T> v) { store(p + j, v); }, [](Vec<T> v) { return v; });
  if (j == n) return;
  const Lanes<T> lanes(n - j);
  const Vec<IntOf<T>> inside = lanes_set<T>((1u << (n - j)) - 1u);
  f([j, lanes](const T* p) { return load(p + j, lanes); }, [j, lanes](T* p, Vec<T> v) { store(p + j, v, lanes); },
    [inside, least](Vec<T> v) { return inside ? v : splat(least); });
}

/// Calls f(column) for each column of the tile that is item `next`.
template <class T, class F>
LOCKSTEP_INLINE void for_columns_of(const ScoreTile<T>& tile, std::int32_t next, const F& f) {
  if (tile.ids == nullptr) {
    const std::int64_t column = next - 1 - tile.first;
    if (column >= 0 && column < tile.candidates) f(column);
    return;
  }
  for (std::int64_t j = 0; j < tile.candidates; ++j)
    if (tile.ids[j] == next) f(j);
}

template <class T>
void update(const ScoreTile<T>& tile, T* scores, T* largest, T* sum) {
  const T least = -static_cast<T>(__builtin_inf());
  for (std::int64_t m = 0; m < tile.tokens; ++m, scores += tile.candidates) {
    if (tile.pos[m] == 0) continue;
    T* row = scores;
    for_columns_of(tile, tile.pos[m], [&](std::int64_t j) { row[j] = least; });
    const T before = largest[m];
    Vec<T> most = splat(before);
    for_vectors<T>(tile.candidates, least, [&](const auto& get, const auto& put, const auto& mask) {
      Vec<T> z = get(row);
      if (tile.bias != nullptr) {
        z += get(tile.bias);
        put(row, z);
      }
      most = max(most, mask(z));
    });
    const T now = largest_lane<T>(most);
    Vec<T> total_of{};
    for_vectors<T>(tile.candidates, least, [&](const auto& get, const auto&, const auto& mask) {
      total_of += exp<Vec<T>>(mask(get(row)) - splat(now));
    });
    sum[m] = sum[m] * exp<Vec<T>>(splat(before - now))[0] + total<T>(total_of);
    largest[m] = now;
  }
}

template <class T>
void probabilities(const ScoreTile<T>& tile, T* scores, const T* lse, T scale) {
  for (std::int64_t m = 0; m < tile.tokens; ++m, scores += tile.candidates) {
    T* row = scores;
    const Vec<T> factor = splat(tile.pos[m] == 0 ? T{0} : scale), shift = splat(lse[m]);
    for_vectors<T>(tile.candidates, T{0}, [&](const auto& get, const auto& put, const auto&) {
      const Vec<T> z = tile.bias != nullptr ? get(row) + get(tile.bias) : get(row);
      put(row, factor * exp<Vec<T>>(z - shift));
    });
    for_columns_of(tile, tile.pos[m], [&](std::int64_t j) { row[j] = 0; });
  }
}

template <class T>
void merge(std::int64_t n, const std::int32_t* pos, T* largest, T* sum, const T* part_largest, const T* part_sum) {
  for (std::int64_t m = 0; m < n; ++m) {
    if (pos[m] == 0) continue;
    const T most = part_largest[m] > largest[m] ? part_largest[m] : largest[m];
    sum[m] =
        sum[m] * exp<Vec<T>>(splat(largest[m] - most))[0] + part_sum[m] * exp<Vec<T>>(splat(part_largest[m] - most))[0];
    largest[m] = most;
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(ItemSoftmaxKernels, item_softmax_kernels, update<T>, probabilities<T>, merge<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "lockstep/ops/cast.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/total_cuda.hpp"

namespace lockstep::ops {
namespace {

/// Whether candidate j of the tile is item `next`.
template <class R>
__device__ bool is_next(const ScoreTile<R>& tile, std::int64_t j, std::int32_t next) {
  return (tile.ids == nullptr ? tile.first + j + 1 : std::int64_t{tile.ids[j]}) == next;
}
template <class R>
__device__ R biased(const ScoreTile<R>& tile, const R* row, std::int64_t j) {
  return tile.bias == nullptr ? row[j] : row[j] + tile.bias[j];
}

/// One warp per token, two passes over its row of the tile (largest, sum of exponentials). Memory bound.
template <class R>
__global__ void __launch_bounds__(gpu::kWarp* gpu::kRowWarps)
    update_kernel(gpu::Earlier earlier, ScoreTile<R> tile, const R* __restrict__ scores, R* __restrict__ largest,
                  R* __restrict__ sum) {
  earlier.wait();
  const std::int64_t m = gpu::warp_row();
  if (m >= tile.tokens) return;
  const std::int32_t next = tile.pos[m];
  if (next == 0) return;  // the whole warp
  const R *row = scores + m * tile.candidates, before = largest[m];
  R most = before;
  for (std::int64_t j = threadIdx.x; j < tile.candidates; j += gpu::kWarp)
    if (!is_next(tile, j, next)) most = gpu::Max()(biased(tile, row, j), most);
  most = gpu::warp_reduce(most, gpu::Max());
  R exponentials = 0;
  for (std::int64_t j = threadIdx.x; j < tile.candidates; j += gpu::kWarp)
    if (!is_next(tile, j, next)) exponentials += exp(biased(tile, row, j) - most);
  exponentials = gpu::warp_reduce(exponentials);
  if (threadIdx.x != 0) return;
  sum[m] = sum[m] * exp(before - most) + exponentials;
  largest[m] = most;
}

/// One thread per score. Memory bound.
template <class T>
__global__ void __launch_bounds__(256)
    probabilities_kernel(gpu::Earlier earlier, ScoreTile<real_t<T>> tile, T* probabilities, const real_t<T>* scores,
                         const real_t<T>* __restrict__ lse, const real_t<T>* __restrict__ dloss) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= tile.tokens * tile.candidates) return;
  const std::int64_t m = i / tile.candidates, j = i % tile.candidates;
  const std::int32_t next = tile.pos[m];
  const bool counts = next != 0 && !is_next(tile, j, next);
  gpu::store(probabilities + i, counts ? *dloss * exp(biased(tile, scores + m * tile.candidates, j) - lse[m]) : R{0});
}

template <class R>
__global__ void __launch_bounds__(256) start_kernel(gpu::Earlier earlier, std::int64_t tokens, R* state) {
  earlier.wait();
  const std::int64_t m = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (m >= tokens) return;
  state[m] = state[2 * tokens + m];
  state[tokens + m] = 1;
}

template <class R>
__global__ void __launch_bounds__(gpu::kTotalThreads)
    finish_kernel(gpu::Earlier earlier, double* partials, std::int64_t tokens, R* state,
                  const std::int32_t* __restrict__ pos) {
  earlier.wait();
  double mine = 0;
  for (std::int64_t m = std::int64_t{blockIdx.x} * gpu::kTotalThreads + threadIdx.x; m < tokens;
       m += std::int64_t{gridDim.x} * gpu::kTotalThreads) {
    R& slope = state[2 * tokens + m];
    if (pos[m] == 0) {
      slope = 0;
      continue;
    }
    const R lse = state[m] + log(state[tokens + m]), lost = lse - slope;
    state[m] = lse;
    slope = expm1(-lost);
    mine += static_cast<double>(lost);
  }
  gpu::put_partial(partials, mine);
}

/// Tokens and candidates of a tile: on the CPU its scores stay in the second-level cache; on a GPU they fill it.
struct TileSize {
  std::int64_t tokens, candidates;
};
TileSize tile_size(Device device) { return device.is_cuda() ? TileSize{8192, 4096} : TileSize{512, kSoftmaxTile}; }

/// The most vectors that a binary tree over this many parts holds at once if parts are added as they are computed.
std::int64_t tree_levels(std::int64_t parts) { return std::bit_width(static_cast<std::uint64_t>(parts)); }

/// The arrays in the scratch memory.
struct Scratch {
  TileSize tile;
  Tensor scores;         ///< (tokens, candidates) of a tile
  Tensor gradient;       ///< for halves: (tokens, C), summed over the tiles of candidates
  Tensor probabilities;  ///< for halves: a tile, or the sum, in their dtype
  Tensor sums;           ///< on the CPU: (2, all tokens), the sums of a part
  Tensor tree;           ///< for several parts: (levels, tokens, C)

  Scratch(const Tensor& memory, Device device, DType dtype, std::int64_t tokens, std::int64_t candidates,
          std::int64_t columns, std::int64_t parts)
      : tile(tile_size(device)) {
    tile = {std::min(tile.tokens, tokens), std::min(tile.candidates, candidates)};
    auto* at = static_cast<std::byte*>(memory.raw());
    const auto take = [&](Shape shape, DType type) {
      const Tensor part(at, type, shape, device);
      at += part.size_bytes();
      return part;
    };
    scores = take({tile.tokens, tile.candidates}, memory.dtype());
    if (!device.is_cuda()) {
      sums = take({2, tokens}, memory.dtype());
      if (parts > 1) tree = take({tree_levels(parts), tile.tokens, columns}, memory.dtype());
    }
    if (!is_half(dtype)) return;
    gradient = take({tile.tokens, columns}, memory.dtype());
    probabilities = take({tile.tokens, std::max(tile.candidates, columns)}, dtype);
  }
};

void check(const char* what, const Tensor& state, const Tensor& scratch, const Tensor& f, const Tensor& table,
           const SoftmaxCandidates& c, std::span<const std::int32_t> pos) {
  const std::int64_t k = c.rows.rows();
  require(f.rows() > 0 && k > 0 && f.rows() == std::ssize(pos) && table.columns() == f.columns() &&
              c.rows.columns() == f.columns() && (!c.ids || c.ids.size() == k) && (!c.bias || c.bias.size() == k) &&
              state.shape() == Shape{3, f.rows()} &&
              scratch.size() >= softmax_scratch(f.device(), is_half(f.dtype()), f.rows(), k, f.columns(), c.parts) &&
              std::has_single_bit(static_cast<std::uint64_t>(c.parts)),
          what, ": f is ", f.shape(), ", the table ", table.shape(), ", candidates ", c.rows.shape(), " with ",
          c.ids.size(), " ids and ", c.bias.size(), " biases in ", c.parts, " parts, state ", state.shape(),
          ", scratch ", scratch.shape(), ", there are ", pos.size(), " items");
}

/// Calls work(tile, m) for each tile of scores, whose first token is m.
template <class R, class F>
void for_tiles(const TileSize& size, const Tensor& f, const SoftmaxCandidates& c, std::span<const std::int32_t> pos,
               const F& work) {
  for (std::int64_t m = 0; m < f.rows(); m += size.tokens) {
    const std::int64_t tokens = std::min(size.tokens, f.rows() - m);
    for (std::int64_t j = 0; j < c.rows.rows(); j += size.candidates) {
      const std::int64_t candidates = std::min(size.candidates, c.rows.rows() - j);
      work(ScoreTile<R>{.tokens = tokens,
                        .candidates = candidates,
                        .first = c.first + j,
                        .pos = staged_copy(pos.data() + m),
                        .ids = c.ids ? c.ids.data<std::int32_t>() + j : nullptr,
                        .bias = c.bias ? c.bias.data<R>() + j : nullptr},
           m);
    }
  }
}

Tensor row(const Tensor& t, std::int64_t i) { return t.slice(i, 1).reshaped({t.columns()}); }

/// The scores of a tile, in `memory`.
template <class R>
Tensor scores_of(Stream& stream, const ScoreTile<R>& tile, std::int64_t m, const Tensor& memory, const Tensor& f,
                 const SoftmaxCandidates& c) {
  const Tensor scores(memory.raw(), memory.dtype(), {tile.tokens, tile.candidates}, f.device());
  gemm_nt(stream, {scores}, f.slice(m, tile.tokens), c.rows.slice(tile.first - c.first, tile.candidates));
  return scores;
}

/// Like softmax_part_backward(), over all tiles.
template <class T>
void backward_on_gpu(Stream& stream, Target df, Target drows, const Tensor& dloss, const Tensor& state,
                     const Scratch& parts, const Tensor& f, const SoftmaxCandidates& c,
                     std::span<const std::int32_t> pos) {
  using R = real_t<T>;
  for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
    const auto part = [&](const Tensor& memory, Shape shape) {
      return Tensor(memory.raw(), memory.dtype(), shape, f.device());
    };
    const Tensor scores = scores_of(stream, tile, m, parts.scores, f, c);
    const Tensor p = is_half(f.dtype()) ? part(parts.probabilities, scores.shape()) : scores;
    const Tensor x = f.slice(m, tile.tokens), w = c.rows.slice(tile.first, tile.candidates);
    gpu::launch(stream, gpu::thread_per_element(scores.size()), probabilities_kernel<T>, tile, p.data<T>(),
                scores.data<R>(), state.data<R>() + m, dloss.data<R>());
    if (drows) gemm_tn(stream, {drows.tensor.slice(tile.first, tile.candidates), drows.accumulate || m > 0}, p, x);
    if (!df) return;
    const Tensor to = df.tensor.slice(m, tile.tokens);
    if (!is_half(f.dtype())) return gemm_nn(stream, {to, df.accumulate || tile.first > 0}, p, w);
    const Tensor sum = part(parts.gradient, to.shape()), rounded = part(parts.probabilities, to.shape());
    gemm_nn(stream, {sum, tile.first > 0}, p, w);
    if (tile.first + tile.candidates < c.rows.rows()) return;
    cast(stream, rounded, sum);
    scale(stream, {to, df.accumulate}, rounded, 1);
  });
}

}  // namespace

SoftmaxCandidates SoftmaxCandidates::part(std::int64_t p) const {
  const std::int64_t begin = part_begin(p), count = part_begin(p + 1) - begin;
  return {.rows = rows.slice(begin, count),
          .ids = ids ? ids.slice(begin, count) : Tensor{},
          .bias = bias ? bias.slice(begin, count) : Tensor{},
          .first = first + begin};
}

std::int64_t softmax_scratch(Device device, bool halves, std::int64_t tokens, std::int64_t candidates,
                             std::int64_t columns, std::int64_t parts) {
  const TileSize most = tile_size(device);
  const std::int64_t rows = std::min(most.tokens, tokens), scores = rows * std::min(most.candidates, candidates);
  if (!device.is_cuda()) return scores + 2 * tokens + (parts > 1 ? tree_levels(parts) * rows * columns : 0);
  return halves ? scores + rows * columns + (std::max(scores, rows * columns) + 1) / 2 : scores;
}

void softmax_part(Stream& stream, const Tensor& largest, const Tensor& sum, const Tensor& next, const Tensor& scratch,
                  const Tensor& f, const SoftmaxCandidates& c, std::span<const std::int32_t> pos) {
  const Scratch parts(scratch, f.device(), f.dtype(), f.rows(), c.rows.rows(), f.columns(), 1);
  copy(stream, largest, next);
  fill_zero(stream, sum);
  visit_float(f.dtype(), [&]<class R>() {
    for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
      const Tensor scores = scores_of(stream, tile, m, parts.scores, f, c);
      cpu::active_item_softmax_kernels<R>().update(tile, scores, largest.data<R>() + m, sum.data<R>() + m);
    });
  });
}

void softmax_begin(const Tensor& largest, const Tensor& sum, const Tensor& next) {
  visit_float(sum.dtype(), [&]<class R>() {
    std::ranges::copy(next.span<R>(), largest.data<R>());
    std::ranges::fill(sum.span<R>(), R{1});
  });
}

void softmax_add(const Tensor& largest, const Tensor& sum, const Tensor& part_largest, const Tensor& part_sum,
                 std::span<const std::int32_t> pos) {
  visit_float(sum.dtype(), [&]<class R>() {
    cpu::active_item_softmax_kernels<R>().merge(sum.size(), pos.data(), largest, sum, part_largest, part_sum);
  });
}

double softmax_end(const Tensor& largest, const Tensor& sum, const Tensor& next, std::span<const std::int32_t> pos) {
  return visit_float(sum.dtype(), [&]<class R>() {
    R *lse = largest.data<R>(), *slope = next.data<R>();
    double total = 0;
    for (std::size_t m = 0; m < pos.size(); ++m) {
      if (pos[m] == 0) {
        slope[m] = 0;
        continue;
      }
      lse[m] += std::log(sum.data<R>()[m]);
      const R lost = lse[m] - slope[m];
      total += static_cast<double>(lost);
      slope[m] = std::expm1(-lost);
    }
    return total;
  });
}

void softmax_part_backward(Stream& stream, Target df, Target drows, const Tensor& dloss, const Tensor& lse,
                           const Tensor& scratch, const Tensor& f, const SoftmaxCandidates& c,
                           std::span<const std::int32_t> pos) {
  const Scratch parts(scratch, f.device(), f.dtype(), f.rows(), c.rows.rows(), f.columns(), 1);
  visit_float(f.dtype(), [&]<class R>() {
    for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
      const std::int64_t first = tile.first - c.first;
      const Tensor p = scores_of(stream, tile, m, parts.scores, f, c);
      cpu::active_item_softmax_kernels<R>().probabilities(tile, p, lse.data<R>() + m, *dloss.data<R>());
      if (drows)
        gemm_tn(stream, {drows.tensor.slice(first, tile.candidates), drows.accumulate || m > 0}, p,
                f.slice(m, tile.tokens));
      if (df)
        gemm_nn(stream, {df.tensor.slice(m, tile.tokens), df.accumulate || first > 0}, p,
                c.rows.slice(first, tile.candidates));
    });
  });
}

void item_softmax_forward(Stream& stream, const Tensor& loss, const Tensor& state, const Tensor& scratch,
                          const Tensor& f, const Tensor& table, const SoftmaxCandidates& c,
                          std::span<const std::int32_t> pos) {
  check("item_softmax", state, scratch, f, table, c, pos);
  const Scratch parts(scratch, f.device(), f.dtype(), f.rows(), c.rows.rows(), f.columns(), c.parts);
  const Tensor lse = row(state, 0), sum = row(state, 1), next = row(state, 2);
  row_scores(stream, next.reshaped({f.rows(), 1}), f, table, pos);
  if (on_gpu(state, [&]<class R>() {
        if constexpr (std::is_same_v<R, real_t<R>>) {
          gpu::launch(stream, gpu::thread_per_element(f.rows()), start_kernel<R>, f.rows(), state.data<R>());
          for_tiles<R>(parts.tile, f, c, pos, [&](const ScoreTile<R>& tile, std::int64_t m) {
            gpu::launch(stream, gpu::warp_per_row(tile.tokens), update_kernel<R>, tile,
                        scores_of(stream, tile, m, parts.scores, f, c).template data<R>(), lse.data<R>() + m,
                        sum.data<R>() + m);
          });
          gpu::launch_total(stream, loss, f.rows(), finish_kernel<R>, f.rows(), state.data<R>(),
                            staged_copy(pos.data()));
        }
      }))
    return;
  softmax_begin(lse, sum, next);
  for (std::int64_t p = 0; p < c.parts; ++p) {
    const SoftmaxCandidates part = c.part(p);
    if (part.rows.rows() == 0) continue;
    softmax_part(stream, row(parts.sums, 0), row(parts.sums, 1), next, scratch, f, part, pos);
    softmax_add(lse, sum, row(parts.sums, 0), row(parts.sums, 1), pos);
  }
  const double total = softmax_end(lse, sum, next, pos);
  visit_float(loss.dtype(), [&]<class R>() { *loss.data<R>() = static_cast<R>(total); });
}

void item_softmax_backward(Stream& stream, Target df, Target drows, const Tensor& dtable, const Tensor& dloss,
                           const Tensor& state, const Tensor& scratch, const Tensor& f, const Tensor& table,
                           const SoftmaxCandidates& c, std::span<const std::int32_t> pos,
                           std::span<const std::int32_t> places) {
  check("item_softmax backward", state, scratch, f, table, c, pos);
  require((!df || df.tensor.shape() == f.shape()) && (!drows || drows.tensor.shape() == c.rows.shape()),
          "item_softmax backward: f is ", f.shape(), ", df ", df.tensor.shape(), ", candidates ", c.rows.shape(),
          ", their gradient ", drows.tensor.shape());
  const Scratch parts(scratch, f.device(), f.dtype(), f.rows(), c.rows.rows(), f.columns(), c.parts);
  const bool gpu = on_gpu(f, [&]<class T>() { backward_on_gpu<T>(stream, df, drows, dloss, state, parts, f, c, pos); });
  for (std::int64_t m = 0; m < f.rows() && !gpu; m += parts.tile.tokens) {
    const std::int64_t tokens = std::min(parts.tile.tokens, f.rows() - m);
    const auto vector = [&](std::int64_t i) {
      return Tensor(parts.tree.slice(i, 1).raw(), f.dtype(), {tokens, f.columns()});
    };
    std::int64_t held = 0;  // vectors of the tree
    for (std::int64_t p = 0; p < c.parts; ++p) {
      const SoftmaxCandidates part = c.part(p);
      const bool alone = c.parts == 1;
      const Target to = !df     ? Target{}
                        : alone ? Target{df.tensor.slice(m, tokens), df.accumulate}
                                : Target{vector(held)};
      if (part.rows.rows() > 0)
        softmax_part_backward(
            stream, to,
            drows ? Target{drows.tensor.slice(c.part_begin(p), part.rows.rows()), drows.accumulate || m > 0} : Target{},
            dloss, state.slice(0, 1).reshaped({f.rows()}).slice(m, tokens), scratch, f.slice(m, tokens), part,
            pos.subspan(m, tokens));
      if (!df || alone) continue;
      if (part.rows.rows() == 0) fill_zero(stream, to.tensor);
      ++held;
      for (std::int64_t n = p + 1; n % 2 == 0; n /= 2, --held)
        add(stream, vector(held - 2), vector(held - 2), vector(held - 1));
    }
    if (held > 0) scale(stream, {df.tensor.slice(m, tokens), df.accumulate}, vector(0), 1);
  }
  sampled_cross_entropy_backward(stream, {df.tensor, true}, dtable, dloss, state.slice(2, 1), f, table, pos, {},
                                 {.pos = places});
}

}  // namespace lockstep::ops
#endif
