#include "lockstep/ops/puzzle_embedding.hpp"

#include <algorithm>

#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// The arguments of ops/puzzle_embedding.hpp. tokens and ids may be pinned host memory.
struct PuzzleShape {
  std::int64_t batch, prefix, cells;        ///< B, P, S
  std::int64_t columns, width, vocabulary;  ///< D, W, V
  const std::int32_t *tokens, *ids;
};

constexpr int kThreads = 128;

/// One block per position of a sequence. Memory bound: writes x. Tables and the block's index come from the caches,
/// unless the index is in host memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    puzzle_embedding_forward_kernel(gpu::Earlier earlier, PuzzleShape s, T* __restrict__ x, const T* __restrict__ table,
                                    const T* __restrict__ puzzles, const T* __restrict__ where, real_t<T> scale) {
  earlier.wait();
  const std::int64_t length = s.prefix + s.cells, b = blockIdx.x / length, t = blockIdx.x - b * length;
  const bool cell = t >= s.prefix;
  const T* from = cell ? table + s.tokens[b * s.cells + t - s.prefix] * s.columns
                       : (s.width > 0 ? puzzles + s.ids[b] * s.width + t * s.columns : nullptr);
  const std::int64_t filled = cell ? s.columns : s.width - t * s.columns;  // the rest is zero
  for (std::int64_t c = threadIdx.x; c < s.columns; c += kThreads) {
    const real_t<T> value = c < filled ? gpu::load(from + c) : 0;
    gpu::store(x + blockIdx.x * s.columns + c, scale * (where ? value + gpu::load(where + t * s.columns + c) : value));
  }
}

/// One block per sequence. Reads the first positions of dx, writes dpuzzle.
template <class T>
__global__ void __launch_bounds__(kThreads)
    puzzle_gradient_kernel(gpu::Earlier earlier, PuzzleShape s, real_t<T>* __restrict__ dpuzzle,
                           const T* __restrict__ dx, real_t<T> scale) {
  earlier.wait();
  const T* from = dx + blockIdx.x * (s.prefix + s.cells) * s.columns;
  for (std::int64_t i = threadIdx.x; i < s.width; i += kThreads)
    dpuzzle[blockIdx.x * s.width + i] = scale * gpu::load(from + i);
}

/// Tokens in a tile. With one column per thread a block needs 16 KiB of shared memory, 32 KiB in f64.
constexpr int kTileTokens = 32;

/// Sums kTileTokens rows of the table (blockIdx.z) over one chunk of the cells (blockIdx.y), kThreads columns
/// (blockIdx.x). There are about a dozen tokens, so the sums are in shared memory, each owned by one thread, and a
/// cell's token selects the sum to add to. No atomics; additions run in the order of the cells. Memory bound: reads dx
/// once per 32 tokens.
template <class T>
__global__ void __launch_bounds__(kThreads)
    token_gradient_kernel(gpu::Earlier earlier, PuzzleShape s, real_t<T>* __restrict__ partials,
                          const T* __restrict__ dx, real_t<T> scale) {
  earlier.wait();
  __shared__ real_t<T> sm_sums[kTileTokens][kThreads];
  const std::int64_t all = s.batch * s.cells;
  const std::int64_t begin = all * blockIdx.y / gridDim.y, end = all * (blockIdx.y + 1) / gridDim.y;
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t first_token = std::int64_t{blockIdx.z} * kTileTokens;
  if (c >= s.columns) return;
  for (int k = 0; k < kTileTokens; ++k) sm_sums[k][threadIdx.x] = 0;
  std::int64_t b = begin / s.cells, cell = begin - b * s.cells;
#pragma unroll 4
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t token = s.tokens[i] - first_token;
    const real_t<T> d = gpu::load(dx + (i + (b + 1) * s.prefix) * s.columns + c);
    if (token >= 0 && token < kTileTokens) sm_sums[token][threadIdx.x] += scale * d;
    if (++cell == s.cells) {
      cell = 0;
      ++b;
    }
  }
  for (int k = 0; k < kTileTokens && first_token + k < s.vocabulary; ++k)
    partials[(blockIdx.y * s.vocabulary + first_token + k) * s.columns + c] = sm_sums[k][threadIdx.x];
}

template <class T>
struct Scaled {
  const T* x;
  std::int64_t n;
  real_t<T> scale;
  __device__ void add(std::int64_t row, std::int64_t column, real_t<T> (&sum)[1]) const {
    sum[0] += scale * gpu::load(x + row * n + column);
  }
};

template <class T>
void token_gradient(const Stream& stream, const PuzzleShape& s, real_t<T>* dtable, const T* dx, real_t<T> scale) {
  using R = real_t<T>;
  const std::int64_t cells = s.batch * s.cells, tiles = gpu::ceil_div(s.columns, kThreads);
  constexpr std::int64_t kLeastCells = 64;
  const std::int64_t chunks = std::clamp<std::int64_t>(4 * gpu::kManyBlocks / std::max<std::int64_t>(1, tiles), 1,
                                                       std::max<std::int64_t>(1, cells / kLeastCells));
  const std::int64_t n = s.vocabulary * s.columns;
  R* partials = gpu::scratch<R>(stream, chunks * n);
  gpu::launch(stream, {.grid = {tiles, chunks, gpu::ceil_div(s.vocabulary, kTileTokens)}, .block = kThreads},
              token_gradient_kernel<T>, s, partials, dx, scale);
  gpu::add_partials<R, 1>(stream, chunks, n, {{dtable}, {true}}, partials, n);
}

PuzzleShape shape_of(const char* what, const Tensor& x, const PuzzleEmbedding& e) {
  const std::int64_t batch = e.ids.size(), cells = e.tokens.columns(), d = x.columns(),
                     width = e.puzzles ? e.puzzles.columns() : 0;
  const std::int64_t prefix = x.shape().rank() == 3 ? x.shape()[1] - cells : -1;
  require(x.shape().rank() == 3 && x.shape()[0] == batch && e.tokens.shape() == Shape{batch, cells} && prefix >= 0 &&
              width <= prefix * d && e.table.shape().rank() == 2 && e.table.columns() == d &&
              (!e.where || e.where.shape() == Shape{x.shape()[1], d}),
          what, ": x is ", x.shape(), ", the tables ", e.table.shape(), ", ", e.puzzles.shape(), " and ",
          e.where.shape(), ", tokens are ", e.tokens.shape(), ", ids ", e.ids.shape(), "; these do not fit together");
  const std::int64_t vocabulary = e.table.shape()[0];
  const auto* tokens = e.tokens.data<std::int32_t>();
  const auto* ids = e.ids.data<std::int32_t>();
  for (std::int64_t i = 0; !e.tokens.device().is_cuda() && i < e.tokens.size(); ++i)
    require(tokens[i] >= 0 && tokens[i] < vocabulary, what, ": token ", tokens[i], " is not in 0..", vocabulary - 1);
  for (std::int64_t b = 0; width > 0 && !e.ids.device().is_cuda() && b < batch; ++b)
    require(ids[b] >= 0 && ids[b] < e.puzzles.shape()[0], what, ": puzzle ", ids[b], " is not in 0..",
            e.puzzles.shape()[0] - 1);
  return {batch, prefix, cells, d, width, vocabulary, tokens, ids};
}

template <class T>
void forward(const PuzzleShape& s, T* to, const T* table, const T* puzzles, const T* where, T scale) {
  const std::int64_t length = (s.prefix + s.cells) * s.columns;
  for (std::int64_t b = 0; b < s.batch; ++b, to += length) {
    if (s.width > 0) std::copy_n(puzzles + s.ids[b] * s.width, s.width, to);
    std::fill(to + s.width, to + s.prefix * s.columns, T{0});
    for (std::int64_t c = 0; c < s.cells; ++c)
      std::copy_n(table + s.tokens[b * s.cells + c] * s.columns, s.columns, to + (s.prefix + c) * s.columns);
    for (std::int64_t i = 0; i < length; ++i) to[i] = scale * (where ? to[i] + where[i] : to[i]);
  }
}

template <class T>
void backward(const PuzzleShape& s, T* dpuzzle, T* dtable, T* dwhere, const T* dx, T scale) {
  const std::int64_t length = (s.prefix + s.cells) * s.columns;
  for (std::int64_t b = 0; b < s.batch; ++b, dx += length) {
    for (std::int64_t i = 0; dpuzzle && i < s.width; ++i) dpuzzle[b * s.width + i] = scale * dx[i];
    for (std::int64_t c = 0; dtable && c < s.cells; ++c) {
      T* to = dtable + s.tokens[b * s.cells + c] * s.columns;
      for (std::int64_t i = 0; i < s.columns; ++i) to[i] += scale * dx[(s.prefix + c) * s.columns + i];
    }
    for (std::int64_t i = 0; dwhere && i < length; ++i) dwhere[i] += scale * dx[i];
  }
}

}  // namespace

void puzzle_embedding_forward(Stream& stream, const Tensor& x, const PuzzleEmbedding& e) {
  const PuzzleShape s = shape_of("puzzle_embedding", x, e);
  on_gpu(x, [&]<class T>() {
    gpu::launch(stream, {.grid = x.rows(), .block = kThreads}, puzzle_embedding_forward_kernel<T>, s, x.data<T>(),
                e.table.data<T>(), e.puzzles.data<T>(), e.where.data<T>(), static_cast<real_t<T>>(e.scale));
  });
  on_cpu(x, [&]<class T>() { forward<T>(s, x, e.table, e.puzzles, e.where, static_cast<T>(e.scale)); });
}

void puzzle_embedding_backward(Stream& stream, const Tensor& dpuzzle, const Tensor& dtable, const Tensor& dwhere,
                               const Tensor& dx, const PuzzleEmbedding& e) {
  const PuzzleShape s = shape_of("puzzle_embedding backward", dx, e);
  require((!dpuzzle || dpuzzle.size() == s.batch * s.width) && (!dtable || dtable.shape() == e.table.shape()) &&
              (!dwhere || dwhere.size() == (s.prefix + s.cells) * s.columns),
          "puzzle_embedding backward: dx is ", dx.shape(), ", the targets are ", dpuzzle.shape(), ", ", dtable.shape(),
          " and ", dwhere.shape(), "; these do not fit together");
  on_gpu(dx, [&]<class T>() {
    using R = real_t<T>;
    const R scale = static_cast<R>(e.scale);
    if (s.batch * s.columns == 0) return;
    if (dpuzzle && s.width > 0)
      gpu::launch(stream, {.grid = s.batch, .block = kThreads}, puzzle_gradient_kernel<T>, s, dpuzzle.data<R>(),
                  dx.data<T>(), scale);
    if (dtable && s.cells > 0) token_gradient<T>(stream, s, dtable, dx, scale);
    const std::int64_t length = (s.prefix + s.cells) * s.columns;
    if (dwhere)
      gpu::column_sums(stream, s.batch, length, gpu::ColumnSums<R, 1>{{dwhere}, {true}}, Scaled<T>{dx, length, scale});
  });
  on_cpu(dx, [&]<class T>() { backward<T>(s, dpuzzle, dtable, dwhere, dx, static_cast<T>(e.scale)); });
}

}  // namespace lockstep::ops
