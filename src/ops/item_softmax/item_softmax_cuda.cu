#include "item_softmax_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "ops/common/total_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

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
__global__ void __launch_bounds__(kWarp* kRowWarps)
    update_kernel(gpu::Earlier earlier, ScoreTile<R> tile, const R* __restrict__ scores, R* __restrict__ largest,
                  R* __restrict__ sum) {
  earlier.wait();
  const std::int64_t m = warp_row();
  if (m >= tile.tokens) return;
  const std::int32_t next = tile.pos[m];
  if (next == 0) return;  // the whole warp
  const R *row = scores + m * tile.candidates, before = largest[m];
  R most = before;
  for (std::int64_t j = threadIdx.x; j < tile.candidates; j += kWarp)
    if (!is_next(tile, j, next)) most = Max()(biased(tile, row, j), most);
  most = warp_reduce(most, Max());
  R exponentials = 0;
  for (std::int64_t j = threadIdx.x; j < tile.candidates; j += kWarp)
    if (!is_next(tile, j, next)) exponentials += exp(biased(tile, row, j) - most);
  exponentials = warp_reduce(exponentials);
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
  store(probabilities + i, counts ? *dloss * exp(biased(tile, scores + m * tile.candidates, j) - lse[m]) : R{0});
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
__global__ void __launch_bounds__(kTotalThreads)
    finish_kernel(gpu::Earlier earlier, double* partials, std::int64_t tokens, R* state,
                  const std::int32_t* __restrict__ pos) {
  earlier.wait();
  double mine = 0;
  for (std::int64_t m = std::int64_t{blockIdx.x} * kTotalThreads + threadIdx.x; m < tokens;
       m += std::int64_t{gridDim.x} * kTotalThreads) {
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
  put_partial(partials, mine);
}

}  // namespace

template <class R>
void item_softmax_update(const Stream& stream, const ScoreTile<R>& tile, R* scores, R* largest, R* sum) {
  launch(stream, warp_per_row(tile.tokens), update_kernel<R>, tile, scores, largest, sum);
}

template <class T>
void item_softmax_probabilities(const Stream& stream, const ScoreTile<real_t<T>>& tile, T* probabilities,
                                const real_t<T>* scores, const real_t<T>* lse, const real_t<T>* dloss) {
  launch(stream, thread_per_element(tile.tokens * tile.candidates), probabilities_kernel<T>, tile, probabilities,
         scores, lse, dloss);
}

template <class R>
void item_softmax_start(const Stream& stream, std::int64_t tokens, R* state) {
  launch(stream, thread_per_element(tokens), start_kernel<R>, tokens, state);
}

template <class R>
void item_softmax_finish(const Stream& stream, std::int64_t tokens, const Tensor& loss, R* state,
                         const std::int32_t* pos) {
  launch_total(stream, loss, tokens, finish_kernel<R>, tokens, state, pos);
}

LOCKSTEP_EACH_FLOAT(item_softmax_update, item_softmax_start, item_softmax_finish)
LOCKSTEP_EACH_STORAGE(item_softmax_probabilities)

}  // namespace lockstep::ops::cuda
