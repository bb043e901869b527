#include "cuda_scatter_rows.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "sampled_cross_entropy_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kTokenWarps = 8;

/// A warp per token: both dots, their losses and slopes. Reads f once and two rows of the table from L2.
template <class T>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    scores_kernel(std::int64_t tokens, std::int64_t columns, double* __restrict__ losses, T* __restrict__ slopes,
                  const T* __restrict__ f, const T* __restrict__ table, const std::int32_t* __restrict__ pos,
                  const std::int32_t* __restrict__ neg) {
  const std::int64_t m = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y;
  if (m >= tokens) return;
  const std::int64_t next = pos[m], drawn = neg[m];
  T by_next = 0, by_drawn = 0;
  if (next != 0)
    for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) {
      const T x = f[m * columns + c];
      by_next += x * table[next * columns + c];
      by_drawn += x * table[drawn * columns + c];
    }
  by_next = warp_reduce(by_next);
  by_drawn = warp_reduce(by_drawn);
  if (threadIdx.x >= 2) return;
  // Lane 0 the next item, lane 1 the drawn one.
  const T z = threadIdx.x == 0 ? -by_next : by_drawn, e = exp(z > 0 ? -z : z);
  const T p = z > 0 ? 1 / (1 + e) : e / (1 + e);
  slopes[threadIdx.x * tokens + m] = next == 0 ? T{0} : threadIdx.x == 0 ? -p : p;
  losses[threadIdx.x * tokens + m] = next == 0 ? 0 : static_cast<double>((z > 0 ? z : T{0}) + log1p(e));
}

/// One block adds up everything, in f64.
template <class T>
__global__ void __launch_bounds__(1024)
    sum_kernel(std::int64_t count, T* __restrict__ sum, const double* __restrict__ x) {
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) mine += x[i];
  const double total = block_reduce(mine);
  if (threadIdx.x == 0) *sum = static_cast<T>(total);
}

/// A warp per token: df = dloss (slope E_pos + slope E_neg).
template <class T>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    features_kernel(std::int64_t tokens, std::int64_t columns, T* __restrict__ df, bool accumulate,
                    const T* __restrict__ dloss, const T* __restrict__ slopes, const T* __restrict__ table,
                    const std::int32_t* __restrict__ pos, const std::int32_t* __restrict__ neg) {
  const std::int64_t m = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y;
  if (m >= tokens) return;
  const std::int64_t next = pos[m], drawn = neg[m];
  const T by_next = *dloss * slopes[m], by_drawn = *dloss * slopes[tokens + m];
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp) {
    T value = accumulate ? df[m * columns + c] : T{0};
    if (next != 0) value = value + by_next * table[next * columns + c] + by_drawn * table[drawn * columns + c];
    df[m * columns + c] = value;
  }
}

/// What one kind of item adds to its row of the table.
template <class T>
struct ItemGradient {
  const T *dloss, *slopes, *f;
  std::int64_t columns;
  __device__ T value(std::int64_t m, std::int64_t c) const { return *dloss * slopes[m] * f[m * columns + c]; }
};

Grid warp_per_token(std::int64_t tokens) {
  return {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(tokens, kTokenWarps)),
          .block = dim3(kWarp, kTokenWarps)};
}

}  // namespace

template <class T>
void sampled_cross_entropy_forward(const Stream& stream, T* loss, T* slopes, const T* f, const T* table,
                                   std::int64_t columns, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg) {
  const auto tokens = static_cast<std::int64_t>(pos.size());
  auto* losses = reinterpret_cast<double*>(scratch(stream, 2 * pos.size() * sizeof(double)));
  if (tokens > 0)
    launch(stream, warp_per_token(tokens), scores_kernel<T>, tokens, columns, losses, slopes, f, table, pos.data(),
           neg.data());
  launch(stream, {.grid = 1, .block = 1024}, sum_kernel<T>, 2 * tokens, loss, losses);
}

template <class T>
void sampled_cross_entropy_backward(const Stream& stream, T* df, bool accumulate, T* dtable, std::int64_t rows,
                                    const T* dloss, const T* slopes, const T* f, const T* table, std::int64_t columns,
                                    std::span<const std::int32_t> pos, std::span<const std::int32_t> neg) {
  const auto tokens = static_cast<std::int64_t>(pos.size());
  if (tokens == 0) return;
  if (df != nullptr)
    launch(stream, warp_per_token(tokens), features_kernel<T>, tokens, columns, df, accumulate, dloss, slopes, table,
           pos.data(), neg.data());
  if (dtable == nullptr) return;
  scatter_rows(stream, tokens, columns, rows, dtable, pos.data(), 0, ItemGradient<T>{dloss, slopes, f, columns});
  // Where there is no next item the slope of the other one is 0.
  scatter_rows(stream, tokens, columns, rows, dtable, neg.data(), -1,
               ItemGradient<T>{dloss, slopes + tokens, f, columns});
}

template void sampled_cross_entropy_forward(const Stream&, float*, float*, const float*, const float*, std::int64_t,
                                            std::span<const std::int32_t>, std::span<const std::int32_t>);
template void sampled_cross_entropy_backward(const Stream&, float*, bool, float*, std::int64_t, const float*,
                                             const float*, const float*, const float*, std::int64_t,
                                             std::span<const std::int32_t>, std::span<const std::int32_t>);
template void sampled_cross_entropy_forward(const Stream&, double*, double*, const double*, const double*, std::int64_t,
                                            std::span<const std::int32_t>, std::span<const std::int32_t>);
template void sampled_cross_entropy_backward(const Stream&, double*, bool, double*, std::int64_t, const double*,
                                             const double*, const double*, const double*, std::int64_t,
                                             std::span<const std::int32_t>, std::span<const std::int32_t>);

}  // namespace lockstep::ops::cuda
