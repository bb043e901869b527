#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/scatter_rows_cuda.hpp"
#include "sampled_cross_entropy_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kTokenWarps = 8;

/// One warp per token: both scores, their losses and slopes. Reads f once and two rows of the table from L2.
template <class T>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    scores_kernel(std::int64_t tokens, std::int64_t columns, double* __restrict__ losses,
                  real_t<T>* __restrict__ slopes, const T* __restrict__ f, const T* __restrict__ table,
                  const std::int32_t* __restrict__ pos, const std::int32_t* __restrict__ neg) {
  using R = real_t<T>;
  const std::int64_t m = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y;
  if (m >= tokens) return;
  const std::int64_t next = pos[m], drawn = neg[m];
  R by_next = 0, by_drawn = 0;
  if (next != 0)
    for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) {
      const R x = load(f + m * columns + c);
      by_next += x * load(table + next * columns + c);
      by_drawn += x * load(table + drawn * columns + c);
    }
  by_next = warp_reduce(by_next);
  by_drawn = warp_reduce(by_drawn);
  if (threadIdx.x >= 2) return;
  // Lane 0 has the next item, lane 1 the sampled one.
  const R z = threadIdx.x == 0 ? -by_next : by_drawn, e = exp(z > 0 ? -z : z);
  const R p = z > 0 ? 1 / (1 + e) : e / (1 + e);
  slopes[threadIdx.x * tokens + m] = next == 0 ? R{0} : threadIdx.x == 0 ? -p : p;
  losses[threadIdx.x * tokens + m] = next == 0 ? 0 : static_cast<double>((z > 0 ? z : R{0}) + log1p(e));
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

/// One warp per token: df = dloss (slope E_pos + slope E_neg).
template <class T>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    features_kernel(std::int64_t tokens, std::int64_t columns, T* __restrict__ df, bool accumulate,
                    const real_t<T>* __restrict__ dloss, const real_t<T>* __restrict__ slopes,
                    const T* __restrict__ table, const std::int32_t* __restrict__ pos,
                    const std::int32_t* __restrict__ neg) {
  using R = real_t<T>;
  const std::int64_t m = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y;
  if (m >= tokens) return;
  const std::int64_t next = pos[m], drawn = neg[m];
  const R by_next = *dloss * slopes[m], by_drawn = *dloss * slopes[tokens + m];
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) {
    R value = accumulate ? load(df + m * columns + c) : R{0};
    if (next != 0)
      value = value + by_next * load(table + next * columns + c) + by_drawn * load(table + drawn * columns + c);
    store(df + m * columns + c, value);
  }
}

/// What the items of one kind add to their rows of the table.
template <class T>
struct ItemGradient {
  const real_t<T>*dloss, *slopes;
  const T* f;
  std::int64_t columns;
  __device__ real_t<T> value(std::int64_t m, std::int64_t c) const {
    return *dloss * slopes[m] * load(f + m * columns + c);
  }
};

Grid warp_per_token(std::int64_t tokens) {
  return {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(tokens, kTokenWarps)),
          .block = dim3(kWarp, kTokenWarps)};
}

}  // namespace

template <class T>
void sampled_cross_entropy_forward(const Stream& stream, real_t<T>* loss, real_t<T>* slopes, const T* f, const T* table,
                                   std::int64_t columns, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg) {
  const auto tokens = static_cast<std::int64_t>(pos.size());
  auto* losses = reinterpret_cast<double*>(scratch(stream, 2 * pos.size() * sizeof(double)));
  if (tokens > 0)
    launch(stream, warp_per_token(tokens), scores_kernel<T>, tokens, columns, losses, slopes, f, table, pos.data(),
           neg.data());
  launch(stream, {.grid = 1, .block = 1024}, sum_kernel<real_t<T>>, 2 * tokens, loss, losses);
}

template <class T>
void sampled_cross_entropy_backward(const Stream& stream, T* df, bool accumulate, real_t<T>* dtable, std::int64_t rows,
                                    const real_t<T>* dloss, const real_t<T>* slopes, const T* f, const T* table,
                                    std::int64_t columns, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg) {
  const auto tokens = static_cast<std::int64_t>(pos.size());
  if (tokens == 0) return;
  if (df != nullptr)
    launch(stream, warp_per_token(tokens), features_kernel<T>, tokens, columns, df, accumulate, dloss, slopes, table,
           pos.data(), neg.data());
  if (dtable == nullptr) return;
  scatter_rows(stream, tokens, columns, rows, dtable, pos.data(), 0, ItemGradient<T>{dloss, slopes, f, columns});
  // A token without a next item has slope 0 for the sampled item too.
  scatter_rows(stream, tokens, columns, rows, dtable, neg.data(), -1,
               ItemGradient<T>{dloss, slopes + tokens, f, columns});
}

LOCKSTEP_EACH_STORAGE(sampled_cross_entropy_forward)
LOCKSTEP_EACH_STORAGE(sampled_cross_entropy_backward)

}  // namespace lockstep::ops::cuda
