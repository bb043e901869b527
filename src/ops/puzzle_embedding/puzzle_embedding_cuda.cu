#include <algorithm>

#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "puzzle_embedding_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

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

}  // namespace

template <class T>
void puzzle_embedding_forward(const Stream& stream, const PuzzleShape& s, T* x, const T* table, const T* puzzles,
                              const T* where, real_t<T> scale) {
  const std::int64_t positions = s.batch * (s.prefix + s.cells);
  gpu::launch(stream, {.grid = positions, .block = kThreads}, puzzle_embedding_forward_kernel<T>, s, x, table, puzzles,
              where, scale);
}

template <class T>
void puzzle_embedding_backward(const Stream& stream, const PuzzleShape& s, real_t<T>* dpuzzle, real_t<T>* dtable,
                               real_t<T>* dwhere, const T* dx, real_t<T> scale) {
  if (s.batch * s.columns == 0) return;
  if (dpuzzle && s.width > 0)
    gpu::launch(stream, {.grid = s.batch, .block = kThreads}, puzzle_gradient_kernel<T>, s, dpuzzle, dx, scale);
  if (dtable && s.cells > 0) token_gradient(stream, s, dtable, dx, scale);
  const std::int64_t length = (s.prefix + s.cells) * s.columns;
  if (dwhere) gpu::column_sums<real_t<T>, 1>(stream, s.batch, length, {{dwhere}, {true}}, Scaled<T>{dx, length, scale});
}

LOCKSTEP_EACH_STORAGE(puzzle_embedding_forward, puzzle_embedding_backward)

}  // namespace lockstep::ops::cuda
