#include <algorithm>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_last_block.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/scatter_rows_cuda.hpp"
#include "sampled_cross_entropy_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kScores = 4;  ///< of a warp

/// A warp computes kScores scores at once, those of a token one after another, and stores their slopes; the block
/// stores the sum of its losses, and the last block adds all in f64. Tokens without a next item after the last one
/// change no bit. Rows of f and of the table come from L2.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowWarps, 6)
    scores_kernel(gpu::Earlier earlier, std::int64_t tokens, std::int64_t each, std::int64_t columns,
                  real_t<T>* __restrict__ sum, double* partials, unsigned* arrived, real_t<T>* __restrict__ slopes,
                  const T* __restrict__ f, const T* __restrict__ table, const std::int32_t* __restrict__ pos,
                  const std::int32_t* __restrict__ neg, real_t<T> beta) {
  earlier.wait();
  using R = real_t<T>;
  static_assert(kScores * kRowWarps == kWarp);
  __shared__ double sm_losses[kWarp];
  const int warp = static_cast<int>(threadIdx.y), lane = static_cast<int>(threadIdx.x), own = lane % kScores;
  const std::int64_t first = warp_row() * kScores, scores = tokens * (1 + each);
  if (first < scores) {
    // A lane knows one score; a score after the last one repeats that.
    const std::int64_t i = first + own < scores ? first + own : scores - 1, m = i / (1 + each), k = i % (1 + each);
    const std::int64_t next = pos[m], item = k == 0 ? next : neg[m * each + k - 1];
    const T *rows[kScores], *items[kScores];
    R sums[kScores] = {}, score = 0;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      rows[j] = f + __shfl_sync(kWholeWarp, m, j) * columns;
      items[j] = table + __shfl_sync(kWholeWarp, item, j) * columns;
    }
#pragma unroll 1  // fewer registers, more warps
    for (std::int64_t c = lane; c < columns; c += kWarp)
#pragma unroll
      for (int j = 0; j < kScores; ++j) sums[j] += load(rows[j] + c) * load(items[j] + c);
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const R sum = warp_reduce(sums[j]);
      if (own == j && next != 0) score = sum;
    }
    const R z = k == 0 ? -score : score, e = exp(z > 0 ? -z : z), weight = next == 0 ? R{0} : k == 0 ? beta : R{1};
    const R p = weight * (z > 0 ? 1 / (1 + e) : e / (1 + e));
    if (lane < kScores) slopes[k * tokens + m] = k == 0 ? -p : p;
    const R loss = first + own < scores ? weight * ((z > 0 ? z : R{0}) + log1p(e)) : R{0};
    if (lane < kScores) sm_losses[warp * kScores + lane] = static_cast<double>(loss);
  } else if (lane < kScores) {
    sm_losses[warp * kScores + lane] = 0;
  }
  __syncthreads();
  if (warp == 0) {
    const double all = warp_reduce(sm_losses[lane]);
    if (lane == 0) partials[blockIdx.x] = all;
  }
  if (!is_last_block(arrived, gridDim.x)) return;
  double mine = 0;
#pragma unroll 4
  for (std::int64_t block = warp * kWarp + lane; block < gridDim.x; block += kWarp * kRowWarps) mine += partials[block];
  mine = warp_reduce(mine);
  __syncthreads();
  if (lane == 0) sm_losses[warp] = mine;
  __syncthreads();
  if (warp != 0) return;
  const double total = warp_reduce(lane < kRowWarps ? sm_losses[lane] : 0.0);
  if (lane == 0) *sum = static_cast<R>(total);
}

/// One warp per token: df = dloss (slope E_pos + the sum of slope E_neg).
template <class T>
__global__ void __launch_bounds__(kWarp* kRowWarps)
    features_kernel(gpu::Earlier earlier, std::int64_t tokens, std::int64_t each, std::int64_t columns,
                    T* __restrict__ df, bool accumulate, const real_t<T>* __restrict__ dloss,
                    const real_t<T>* __restrict__ slopes, const T* __restrict__ table,
                    const std::int32_t* __restrict__ pos, const std::int32_t* __restrict__ neg) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t m = warp_row();
  if (m >= tokens) return;
  const std::int64_t next = pos[m];
  const R by_next = *dloss * slopes[m];
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) {
    R value = accumulate ? load(df + m * columns + c) : R{0};
    if (next != 0) {
      value = value + by_next * load(table + next * columns + c);
      for (std::int64_t k = 1; k <= each; ++k)
        value = value + *dloss * slopes[k * tokens + m] * load(table + neg[m * each + k - 1] * columns + c);
    }
    store(df + m * columns + c, value);
  }
}

/// The gradients of rows of the table: from the next items of all tokens, then from their negatives.
template <class R>
struct ItemGradient {
  const R *dloss, *slopes;
  std::int64_t tokens, each;
  __device__ RowUse<R> operator()(std::int64_t i) const {
    const std::int64_t m = i < tokens ? i : (i - tokens) / each, k = i < tokens ? 0 : 1 + (i - tokens) % each;
    return {m, *dloss * slopes[k * tokens + m]};
  }
};

std::int64_t negatives_of_each(std::span<const std::int32_t> pos, std::span<const std::int32_t> neg) {
  return pos.empty() ? 0 : static_cast<std::int64_t>(neg.size() / pos.size());
}

}  // namespace

template <class T>
void sampled_cross_entropy_forward(const Stream& stream, real_t<T>* loss, real_t<T>* slopes, const T* f, const T* table,
                                   std::int64_t columns, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg, real_t<T> beta) {
  const auto tokens = static_cast<std::int64_t>(pos.size()), each = negatives_of_each(pos, neg);
  const Grid grid = warp_per_row(std::max<std::int64_t>(1, ceil_div((1 + each) * tokens, kScores)));
  auto* partials = scratch<double>(stream, grid.grid.x);
  launch(stream, grid, scores_kernel<T>, tokens, each, columns, loss, partials, block_counters(stream), slopes, f,
         table, staged_copy(pos.data()), staged_copy(neg.data()), beta);
}

template <class T>
void sampled_cross_entropy_backward(const Stream& stream, T* df, bool accumulate, real_t<T>* dtable, std::int64_t rows,
                                    const real_t<T>* dloss, const real_t<T>* slopes, const T* f, const T* table,
                                    std::int64_t columns, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg) {
  const auto tokens = static_cast<std::int64_t>(pos.size()), each = negatives_of_each(pos, neg);
  if (df != nullptr)
    launch(stream, warp_per_row(tokens), features_kernel<T>, tokens, each, columns, df, accumulate, dloss, slopes,
           table, staged_copy(pos.data()), staged_copy(neg.data()));
  if (dtable == nullptr) return;
  scatter_rows(stream, {pos, neg}, columns, rows, dtable, 0, f, ItemGradient<real_t<T>>{dloss, slopes, tokens, each});
}

LOCKSTEP_EACH_STORAGE(sampled_cross_entropy_forward, sampled_cross_entropy_backward)

}  // namespace lockstep::ops::cuda
