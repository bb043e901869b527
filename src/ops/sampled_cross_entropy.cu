#include "lockstep/ops/sampled_cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_last_block.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/row_kernels.hpp"
#include "ops/common/scatter_rows_cuda.hpp"

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
    // A lane holds one score; lanes after the last score repeat it.
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

}  // namespace

}  // namespace lockstep::ops::cuda

namespace lockstep::ops {

namespace {

using Items = std::span<const std::int32_t>;

/// Returns the negatives of a token.
std::size_t check(const char* what, const Tensor& slopes, const Tensor& f, const Tensor& table, Items pos, Items neg) {
  const std::size_t each = pos.empty() ? 0 : neg.size() / pos.size();
  require(f.rows() == std::ssize(pos) && each * pos.size() == neg.size() && table.columns() == f.columns() &&
              slopes.columns() == f.rows() && (pos.empty() || slopes.rows() == static_cast<std::int64_t>(1 + each)),
          what, ": f is ", f.shape(), ", the table ", table.shape(), ", slopes ", slopes.shape(), ", there are ",
          pos.size(), " and ", neg.size(), " items");
  const auto check_item = [&](std::int32_t item) {
    require(item >= 0 && item < table.shape()[0], what, ": item ", item, " is not in 0..", table.shape()[0] - 1);
  };
  const Items readable = host_readable(table.device(), pos);
  for (std::size_t m = 0; m < readable.size(); ++m) {
    if (pos[m] == 0) continue;
    check_item(pos[m]);
    for (const std::int32_t item : neg.subspan(m * each, each)) check_item(item);
  }
  return each;
}

/// Prefetches the rows of a later token: rows of items are scattered, and without prefetches each one waits for the
/// third-level cache or memory.
template <class T>
class RowPrefetch {
 public:
  RowPrefetch(const T* table, std::int64_t columns, Items pos, Items neg, std::size_t each)
      : table_(table), columns_(columns), pos_(pos), neg_(neg), each_(each) {}
  /// Call at token m.
  void operator()(std::size_t m) const {
    const std::size_t later = m + kAhead;
    if (table_ == nullptr || later >= pos_.size() || pos_[later] == 0) return;
    row(pos_[later]);
    for (const std::int32_t item : neg_.subspan(later * each_, each_)) row(item);
  }

 private:
  static constexpr std::size_t kAhead = 8;
  void row(std::int64_t item) const {
    const char* begin = reinterpret_cast<const char*>(table_ + item * columns_);
    for (const char* at = begin; at < reinterpret_cast<const char*>(table_ + (item + 1) * columns_); at += 64)
      __builtin_prefetch(at);
  }
  const T* table_;
  std::int64_t columns_;
  Items pos_, neg_;
  std::size_t each_;
};

}  // namespace

void sampled_cross_entropy_forward(Stream& stream, const Tensor& loss, const Tensor& slopes, const Tensor& f,
                                   const Tensor& table, Items pos, Items neg, double beta) {
  const std::size_t each = check("sampled_cross_entropy", slopes, f, table, pos, neg);
  const std::int64_t c = f.columns();
  on_gpu(f, [&]<class T>() {
    using R = real_t<T>;
    const std::int64_t tokens = std::ssize(pos), negatives = static_cast<std::int64_t>(each);
    const gpu::Grid grid = gpu::warp_per_row(
        std::max<std::int64_t>(1, gpu::ceil_div((1 + negatives) * tokens, std::int64_t{cuda::kScores})));
    auto* partials = gpu::scratch<double>(stream, grid.grid.x);
    gpu::launch(stream, grid, cuda::scores_kernel<T>, tokens, negatives, c, loss.data<R>(), partials,
                gpu::block_counters(stream), slopes.data<R>(), f.data<T>(), table.data<T>(), staged_copy(pos.data()),
                staged_copy(neg.data()), static_cast<R>(beta));
  });
  on_cpu(f, [&]<class T>() {
    const auto dot = cpu::active_row_kernels<T>().dot;
    const RowPrefetch<T> prefetch(table, c, pos, neg, each);
    double sum = 0;
    for (std::size_t m = 0; m < pos.size(); ++m) {
      prefetch(m);
      const T* x = f.data<T>() + static_cast<std::int64_t>(m) * c;
      for (std::size_t k = 0; k <= each; ++k) {
        T& slope = slopes.data<T>()[k * pos.size() + m];
        slope = 0;
        if (pos[m] == 0) continue;
        const bool next = k == 0;
        const T weight = next ? static_cast<T>(beta) : T{1};
        const T score = dot(c, x, table.data<T>() + (next ? pos[m] : neg[m * each + k - 1]) * c);
        const T z = next ? -score : score;
        const T e = std::exp(-std::abs(z));
        sum += static_cast<double>(weight * (std::max(z, T{0}) + std::log1p(e)));
        const T p = weight * (z > 0 ? 1 / (1 + e) : e / (1 + e));
        slope = next ? -p : p;
      }
    }
    *loss.data<T>() = static_cast<T>(sum);
  });
}

void sampled_cross_entropy_backward(Stream& stream, Target df, const Tensor& dtable, const Tensor& dloss,
                                    const Tensor& slopes, const Tensor& f, const Tensor& table, Items pos, Items neg,
                                    const ItemPlaces& places) {
  const std::size_t each = check("sampled_cross_entropy backward", slopes, f, table, pos, neg);
  require((!df || df.tensor.shape() == f.shape()) && (!dtable || dtable.shape() == table.shape()),
          "sampled_cross_entropy backward: f is ", f.shape(), ", df ", df.tensor.shape(), ", the table ", table.shape(),
          ", its gradient ", dtable.shape());
  const std::int64_t c = f.columns();
  on_gpu(f, [&]<class T>() {
    using R = real_t<T>;
    const std::int64_t tokens = std::ssize(pos), negatives = static_cast<std::int64_t>(each);
    if (df)
      gpu::launch(stream, gpu::warp_per_row(tokens), cuda::features_kernel<T>, tokens, negatives, c,
                  df.tensor.data<T>(), df.accumulate, dloss.data<R>(), slopes.data<R>(), table.data<T>(),
                  staged_copy(pos.data()), staged_copy(neg.data()));
    if (dtable)
      gpu::scatter_rows<T>(stream, {pos, neg}, c, table.rows(), dtable, 0, f,
                           cuda::ItemGradient<R>{dloss, slopes, tokens, negatives});
  });
  on_cpu(f, [&]<class T>() {
    T* const to = df.tensor.data<T>();
    T* const to_table = dtable.data<T>();
    const auto add_row = cpu::active_row_kernels<T>().add;
    const RowPrefetch<T> prefetch(table, c, pos, neg, each);
    const Items to_pos = places.pos.empty() ? pos : places.pos, to_neg = places.neg.empty() ? neg : places.neg;
    const T seed = *dloss.data<T>();
    for (std::size_t m = 0; m < pos.size(); ++m) {
      prefetch(m);
      const std::int64_t row = static_cast<std::int64_t>(m) * c;
      T* dx = to != nullptr ? to + row : nullptr;
      if (dx != nullptr && !df.accumulate) std::fill_n(dx, c, T{0});
      if (pos[m] == 0) continue;
      for (std::size_t k = 0; k <= each; ++k) {
        const std::size_t n = k == 0 ? m : m * each + k - 1;
        const std::int64_t item = (k == 0 ? pos : neg)[n], place = (k == 0 ? to_pos : to_neg)[n];
        const T slope = seed * slopes.data<T>()[k * pos.size() + m];
        const T *e = table.data<T>() + item * c, *x = f.data<T>() + row;
        if (dx != nullptr) add_row(c, dx, e, slope);
        if (to_table != nullptr) add_row(c, to_table + place * c, x, slope);
      }
    }
  });
}

}  // namespace lockstep::ops
