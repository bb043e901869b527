#include "linear_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Gradients of narrow layers: dw_nk = sum_m da_mn x_mk and db_n = sum_m da_mn, where da = dy derivative, over many
/// rows m. A library needs four launches: one or two passes for da and db, a split product, and a pass that adds its
/// parts; the last ones keep few multiprocessors busy. Here one launch reads dy, derivative and x once.
///
/// A block of 256 threads sums every gridDim.x-th group of rows. It copies 64 columns of da and all of x to shared
/// memory, with all loads of a group under way at once; a thread has 4 x 4 sums. A second launch adds the parts of all
/// blocks. The order of additions depends on the shape alone; rows of 0 after the last one change no bit.
constexpr int kTile = 64, kEach = 4, kThreads = (kTile / kEach) * (kTile / kEach);
template <class R>
constexpr int kGroupRows = sizeof(R) == 4 ? 64 : 32;
/// Two blocks for each multiprocessor of a large GPU. More write more parts, which the second launch reads.
constexpr std::int64_t kMostBlocks = 256;
/// With fewer rows the library's product is as fast.
constexpr std::int64_t kFewestRows = 1024;
constexpr std::int64_t kMostOutputs = 256;

template <class T>
struct TallProduct {
  std::int64_t m, n, k;
  T* dy;                ///< (m, n)
  const T* derivative;  ///< (m, n) or null
  const T* x;           ///< (m, k)
  real_t<T>* parts;     ///< (gridDim.x, n k + n): dw, then db
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads) tall_product_kernel(gpu::Earlier earlier, TallProduct<T> p) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kRows = kGroupRows<R>, kPacks = kTile / N;
  __shared__ gpu::Pack<R, kEach> sm_da[kRows][kTile / kEach], sm_x[kRows][kTile / kEach];
  const int thread = static_cast<int>(threadIdx.x), at_n = thread / (kTile / kEach), at_k = thread % (kTile / kEach);
  const std::int64_t first = std::int64_t{blockIdx.y} * kTile;
  R dw[kEach][kEach] = {}, db[kEach] = {};
  for (std::int64_t base = std::int64_t{blockIdx.x} * kRows; base < p.m; base += std::int64_t{gridDim.x} * kRows) {
    __syncthreads();  // the group before has been read
#pragma unroll 4
    for (int e = thread; e < kRows * kPacks; e += kThreads) {
      const int row = e / kPacks, column = e % kPacks * N;
      gpu::Pack<R, N> da{}, x{};
      if (base + row < p.m && first + column < p.n) {
        const std::int64_t i = (base + row) * p.n + first + column;
        da = gpu::load<N>(p.dy + i);
        if (p.derivative != nullptr) {
          const gpu::Pack<R, N> slope = gpu::load<N>(p.derivative + i);
#pragma unroll
          for (int j = 0; j < N; ++j) da.at[j] *= slope.at[j];
          gpu::store(p.dy + i, da);
        }
      }
      if (base + row < p.m && column < p.k) x = gpu::load<N>(p.x + (base + row) * p.k + column);
      *reinterpret_cast<gpu::Pack<R, N>*>(&sm_da[row][0].at[0] + column) = da;
      *reinterpret_cast<gpu::Pack<R, N>*>(&sm_x[row][0].at[0] + column) = x;
    }
    __syncthreads();
#pragma unroll 8
    for (int row = 0; row < kRows; ++row) {
      const gpu::Pack<R, kEach> da = sm_da[row][at_n], x = sm_x[row][at_k];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        db[i] += da.at[i];
#pragma unroll
        for (int j = 0; j < kEach; ++j) dw[i][j] += da.at[i] * x.at[j];
      }
    }
  }
  R* const to = p.parts + std::int64_t{blockIdx.x} * (p.n * p.k + p.n);
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t row = first + kEach * at_n + i;
    if (row >= p.n) return;
    for (int j = 0; j < kEach; ++j)
      if (kEach * at_k + j < p.k) to[row * p.k + kEach * at_k + j] = dw[i][j];
    if (at_k == 0) to[p.n * p.k + row] = db[i];  // mutant-equivalent: other threads have the same sum
  }
}

/// Adds the parts of dw (`weights` elements) and db (n): 32 elements for each block. Latency bound: small blocks, so
/// that all of them run at once.
constexpr int kSumWarps = 8;
template <class R>
__global__ void __launch_bounds__(kSumWarps* gpu::kWarp)
    tall_sums_kernel(gpu::Earlier earlier, std::int64_t parts, std::int64_t weights, std::int64_t n,
                     gpu::ColumnSums<R, 1> dw, gpu::ColumnSums<R, 1> db, const R* __restrict__ from) {
  earlier.wait();
  const std::int64_t blocks = gpu::ceil_div(weights, gpu::kWarp), block = blockIdx.x;
  const bool bias = block >= blocks;
  const gpu::ColumnSums<R, 1> sums{{bias ? db.to[0] : dw.to[0]}, {bias ? db.accumulate[0] : dw.accumulate[0]}};
  gpu::add_partials<kSumWarps>(parts, bias ? n : weights, (bias ? block - blocks : block) * gpu::kWarp, 0, sums,
                               bias ? from + weights : from, weights + n);
}

}  // namespace

template <class T>
void linear_gradients(const Stream& stream, const LinearShape& s, T* dy, const T* derivative, const T* x,
                      const Gradient<T>& dw, const Gradient<T>& db) {
  using R = real_t<T>;
  if (dw.to == nullptr || s.m < kFewestRows || s.n > kMostOutputs || s.k > kTile) {
    scale_and_sum<T>(stream, s.m, s.n, dy, derivative, db.to, db.accumulate);
    if (dw.to != nullptr) product<T, R>(stream, Product::tn, s.n, s.k, s.m, dw.to, dy, x, dw.accumulate);
    return;
  }
  const std::int64_t tiles = gpu::ceil_div(s.n, kTile), weights = s.n * s.k;
  const std::int64_t groups = std::min(gpu::ceil_div(s.m, kGroupRows<R>), kMostBlocks / tiles);
  const TallProduct<T> p{s.m, s.n, s.k, dy, derivative, x, gpu::scratch<R>(stream, groups * (weights + s.n))};
  const auto whole = [&]<int N>() {
    return s.n % N == 0 && s.k % N == 0 && gpu::aligned_for<N>(static_cast<const T*>(dy), derivative, x);
  };
  const gpu::Grid grid{.grid = {groups, tiles}, .block = kThreads};
  if (whole.template operator()<4>())
    gpu::launch(stream, grid, tall_product_kernel<T, 4>, p);
  else if (whole.template operator()<2>())
    gpu::launch(stream, grid, tall_product_kernel<T, 2>, p);
  else
    gpu::launch(stream, grid, tall_product_kernel<T, 1>, p);
  const std::int64_t blocks =
      gpu::ceil_div(weights, gpu::kWarp) + (db.to != nullptr ? gpu::ceil_div(s.n, gpu::kWarp) : 0);
  gpu::launch(stream, {.grid = blocks, .block = {gpu::kWarp, kSumWarps}}, tall_sums_kernel<R>, groups, weights, s.n,
              gpu::ColumnSums<R, 1>{{dw.to}, {dw.accumulate}}, gpu::ColumnSums<R, 1>{{db.to}, {db.accumulate}},
              static_cast<const R*>(p.parts));
}

LOCKSTEP_EACH_STORAGE(linear_gradients)

}  // namespace lockstep::ops::cuda
