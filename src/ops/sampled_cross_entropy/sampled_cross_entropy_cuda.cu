#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/scatter_rows_cuda.hpp"
#include "sampled_cross_entropy_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kTokenWarps = 8;

/// One warp per score: first those of the next items, then those of negative 1 of all tokens, and so on. Stores its loss
/// and slope. Rows of f and of the table come from L2.
template <class T>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    scores_kernel(std::int64_t tokens, std::int64_t each, std::int64_t columns, double* __restrict__ losses,
                  real_t<T>* __restrict__ slopes, const T* __restrict__ f, const T* __restrict__ table,
                  const std::int32_t* __restrict__ pos, const std::int32_t* __restrict__ neg, real_t<T> beta) {
  using R = real_t<T>;
  const std::int64_t i = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y, m = i % tokens, k = i / tokens;
  if (k > each) return;
  const std::int64_t next = pos[m], item = k == 0 ? next : neg[m * each + k - 1];
  R score = 0;
  if (next != 0)
    for (std::int64_t c = threadIdx.x; c < columns; c += kWarp)
      score += load(f + m * columns + c) * load(table + item * columns + c);
  score = warp_reduce(score);
  if (threadIdx.x != 0) return;
  const R z = k == 0 ? -score : score, e = exp(z > 0 ? -z : z), weight = next == 0 ? R{0} : k == 0 ? beta : R{1};
  const R p = weight * (z > 0 ? 1 / (1 + e) : e / (1 + e));
  slopes[i] = k == 0 ? -p : p;
  losses[i] = static_cast<double>(weight * ((z > 0 ? z : R{0}) + log1p(e)));
}

/// One block adds everything in f64.
template <class T>
__global__ void __launch_bounds__(1024)
    sum_kernel(std::int64_t count, T* __restrict__ sum, const double* __restrict__ x) {
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) mine += x[i];
  const double total = block_reduce(mine);
  if (threadIdx.x == 0) *sum = static_cast<T>(total);
}

/// One warp per token: df = dloss (slope E_pos + the sum of slope E_neg).
template <class T>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    features_kernel(std::int64_t tokens, std::int64_t each, std::int64_t columns, T* __restrict__ df, bool accumulate,
                    const real_t<T>* __restrict__ dloss, const real_t<T>* __restrict__ slopes,
                    const T* __restrict__ table, const std::int32_t* __restrict__ pos,
                    const std::int32_t* __restrict__ neg) {
  using R = real_t<T>;
  const std::int64_t m = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y;
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

/// What the next items (`each` 0), or the negatives of all tokens, add to their rows of the table.
template <class T>
struct ItemGradient {
  const real_t<T>*dloss, *slopes;
  const T* f;
  std::int64_t tokens, each, columns;
  __device__ real_t<T> value(std::int64_t i, std::int64_t c) const {
    const std::int64_t m = each == 0 ? i : i / each, k = each == 0 ? 0 : 1 + i % each;
    return *dloss * slopes[k * tokens + m] * load(f + m * columns + c);
  }
};

Grid one_warp_each(std::int64_t n) {
  return {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(n, kTokenWarps)), .block = dim3(kWarp, kTokenWarps)};
}

std::int64_t negatives_of_each(std::span<const std::int32_t> pos, std::span<const std::int32_t> neg) {
  return pos.empty() ? 0 : static_cast<std::int64_t>(neg.size() / pos.size());
}

}  // namespace

template <class T>
void sampled_cross_entropy_forward(const Stream& stream, real_t<T>* loss, real_t<T>* slopes, const T* f, const T* table,
                                   std::int64_t columns, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg, real_t<T> beta) {
  const auto tokens = static_cast<std::int64_t>(pos.size()), each = negatives_of_each(pos, neg);
  auto* losses = reinterpret_cast<double*>(scratch(stream, (pos.size() + neg.size()) * sizeof(double)));
  if (tokens > 0)
    launch(stream, one_warp_each((1 + each) * tokens), scores_kernel<T>, tokens, each, columns, losses, slopes, f,
           table, pos.data(), neg.data(), beta);
  launch(stream, {.grid = 1, .block = 1024}, sum_kernel<real_t<T>>, (1 + each) * tokens, loss, losses);
}

template <class T>
void sampled_cross_entropy_backward(const Stream& stream, T* df, bool accumulate, real_t<T>* dtable, std::int64_t rows,
                                    const real_t<T>* dloss, const real_t<T>* slopes, const T* f, const T* table,
                                    std::int64_t columns, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg) {
  const auto tokens = static_cast<std::int64_t>(pos.size()), each = negatives_of_each(pos, neg);
  if (tokens == 0) return;
  if (df != nullptr)
    launch(stream, one_warp_each(tokens), features_kernel<T>, tokens, each, columns, df, accumulate, dloss, slopes,
           table, pos.data(), neg.data());
  if (dtable == nullptr) return;
  scatter_rows(stream, tokens, columns, rows, dtable, pos.data(), 0,
               ItemGradient<T>{dloss, slopes, f, tokens, 0, columns});
  // A token without a next item has slope 0 for its negatives too.
  scatter_rows(stream, tokens * each, columns, rows, dtable, neg.data(), -1,
               ItemGradient<T>{dloss, slopes, f, tokens, each, columns});
}

LOCKSTEP_EACH_STORAGE(sampled_cross_entropy_forward)
LOCKSTEP_EACH_STORAGE(sampled_cross_entropy_backward)

}  // namespace lockstep::ops::cuda
