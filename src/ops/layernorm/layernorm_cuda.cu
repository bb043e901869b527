#include <algorithm>

#include "layernorm_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/column_sums_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;

/// Elements of a row that a lane can hold in registers: rows of up to 1024 columns (512 in f64). Longer rows are read
/// again, from the caches.
template <class T>
constexpr int most_per_lane() {
  return sizeof(T) == 8 ? 16 : 32;
}

/// A row as a warp sees it: lane l has columns l, l + 32, ... With kHeld > 0 a lane holds kHeld of them in registers.
template <class T, int kHeld>
class Row {
 public:
  using R = real_t<T>;
  __device__ Row(const T* x, std::int64_t columns, int lane) : x_(x), columns_(columns), lane_(lane) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) values_[i] = i * kWarp + lane < columns ? gpu::load(x + i * kWarp + lane) : R{0};
    }
  }
  /// Calls f(column, value, i); i counts this lane's columns.
  template <class F>
  __device__ void each(const F& f) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (i * kWarp + lane_ < columns_) f(std::int64_t{i * kWarp + lane_}, values_[i], i);
    } else {
      int i = 0;
      for (std::int64_t c = lane_; c < columns_; c += kWarp) f(c, gpu::load(x_ + c), i++);
    }
  }

  __device__ R value(int i) const { return values_[i]; }

 private:
  const T* x_;
  std::int64_t columns_;
  int lane_;
  R values_[kHeld > 0 ? kHeld : 1];
};

/// One warp per row, read once; the variance is that of centred values. Memory bound: reads x, writes y.
template <class T, int kHeld>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    layernorm_forward_kernel(std::int64_t rows, std::int64_t columns, T* y, real_t<T>* __restrict__ mean,
                             real_t<T>* __restrict__ rstd, const T* x, const T* __restrict__ gamma,
                             const T* __restrict__ beta, real_t<T> eps) {
  using R = real_t<T>;
  const std::int64_t row = gpu::warp_row();
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const Row<T, kHeld> values(x + row * columns, columns, lane);
  const R count = static_cast<R>(columns);
  R sum = 0, squares = 0;
  values.each([&](std::int64_t, R v, int) { sum += v; });
  const R m = gpu::warp_reduce(sum) / count;
  values.each([&](std::int64_t, R v, int) { squares += (v - m) * (v - m); });
  const R s = 1 / std::sqrt(gpu::warp_reduce(squares) / count + eps);
  T* to = y + row * columns;
  values.each(
      [&](std::int64_t c, R v, int) { gpu::store(to + c, (v - m) * s * gpu::load(gamma + c) + gpu::load(beta + c)); });
  if (mean != nullptr && lane == 0) {
    mean[row] = m;
    rstd[row] = s;
  }
}

/// Warps of a block of the backward pass. Short rows leave enough registers for large blocks; the last block then adds
/// the sums of all.
template <int kHeld>
constexpr int kBackwardWarps = kHeld > 0 && kHeld <= 4 ? kWarp : gpu::kRowWarps;

/// One warp per row, row after row, so that the sums for gamma and beta and, if kSums is 3, of the rows of derivative
/// or dx stay in registers until the end; partials (blocks, kSums, C) receives those of each block, and with short rows
/// the last block adds them. dx, partials or derivative may be null. Memory bound: reads x and dy, writes dx.
template <class T, int kHeld, int kSums>
__global__ void __launch_bounds__(kWarp* kBackwardWarps<kHeld>)
    layernorm_backward_kernel(std::int64_t rows, std::int64_t columns, T* dx, bool accumulate, T* derivative,
                              gpu::ColumnSums<real_t<T>, kSums> parameters, real_t<T>* partials, unsigned* arrived,
                              const T* dy, const T* __restrict__ x, const real_t<T>* __restrict__ mean,
                              const real_t<T>* __restrict__ rstd, const T* __restrict__ gamma) {
  using R = real_t<T>;
  constexpr int kWarps = kBackwardWarps<kHeld>;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const R count = static_cast<R>(columns);
  R sums[kSums][kHeld > 0 ? kHeld : 1] = {};
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp; row < rows;
       row += std::int64_t{gridDim.x} * kWarps) {
    const Row<T, kHeld> values(x + row * columns, columns, lane), slopes(dy + row * columns, columns, lane);
    const R m = mean[row], s = rstd[row];
    R sum_a = 0, sum_ah = 0;
    const T* d = dy + row * columns;
    const auto slope = [&](std::int64_t c, int i) {
      if constexpr (kHeld > 0)
        return slopes.value(i);
      else
        return gpu::load(d + c);
    };
    values.each([&](std::int64_t c, R v, int i) {
      const R h = (v - m) * s, g = slope(c, i), a = g * gpu::load(gamma + c);
      sum_a += a;
      sum_ah += a * h;
      if constexpr (kHeld > 0) {
        sums[0][i] += g * h;
        sums[1][i] += g;
      }
    });
    if (dx == nullptr) continue;
    const R mean_a = gpu::warp_reduce(sum_a) / count, mean_ah = gpu::warp_reduce(sum_ah) / count;
    T *const to = dx + row * columns, *const also = derivative != nullptr ? derivative + row * columns : nullptr;
    values.each([&](std::int64_t c, R v, int i) {
      R value = s * (slope(c, i) * gpu::load(gamma + c) - mean_a - (v - m) * s * mean_ah);
      if (accumulate) value += gpu::load(to + c);
      gpu::store(to + c, value);
      if (also != nullptr) {
        value *= gpu::load(also + c);
        gpu::store(also + c, value);
      }
      if constexpr (kHeld > 0 && kSums > 2) sums[2][i] += value;
    });
  }
  if constexpr (kHeld > 0) {
    if (partials == nullptr) return;
    __shared__ R sm_sums[kSums][kHeld * kWarp];
    for (int w = 0; w < kWarps; ++w) {  // one warp after another, in a fixed order
      if (w == warp) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          const int c = i * kWarp + lane;
#pragma unroll
          for (int k = 0; k < kSums; ++k) sm_sums[k][c] = w == 0 ? sums[k][i] : sm_sums[k][c] + sums[k][i];
        }
      }
      __syncthreads();
    }
    // mutant-equivalent: an element computed twice gets the same value
    for (std::int64_t c = warp * kWarp + lane; c < columns; c += kWarp * kWarps)
      for (int k = 0; k < kSums; ++k) partials[(std::int64_t{blockIdx.x} * kSums + k) * columns + c] = sm_sums[k][c];
    if constexpr (kWarps == kWarp) {
      if (!gpu::is_last_block(arrived, gridDim.x)) return;
      for (std::int64_t first = 0; first < columns; first += kWarp)
        for (int k = 0; k < kSums; ++k)
          gpu::add_partials<kWarps>(gridDim.x, columns, first, k, parameters, static_cast<const R*>(partials),
                                    kSums * columns);
    }
  }
}

/// The sums for gamma and beta of rows that are too long for registers.
template <class T>
struct LongRows {
  const T *dy, *x;
  const real_t<T>*mean, *rstd;
  std::int64_t columns;
  __device__ void add(std::int64_t row, std::int64_t c, real_t<T> (&sum)[2]) const {
    const real_t<T> d = gpu::load(dy + row * columns + c);
    sum[0] += d * (gpu::load(x + row * columns + c) - mean[row]) * rstd[row];
    sum[1] += d;
  }
};

/// Calls f.template operator()<kHeld>().
template <class T, class F>
void visit_held(std::int64_t columns, const F& f) {
  const std::int64_t per_lane = gpu::ceil_div(columns, kWarp);
  if (per_lane > most_per_lane<T>()) return f.template operator()<0>();
  if constexpr (most_per_lane<T>() == 32) {
    if (per_lane > 16) return f.template operator()<32>();
  }
  if (per_lane > 8) return f.template operator()<16>();
  if (per_lane > 4) return f.template operator()<8>();
  if (per_lane > 2) return f.template operator()<4>();
  f.template operator()<2>();
}

}  // namespace

template <class T>
void layernorm_forward(const Stream& stream, std::int64_t n, std::int64_t c, T* y, real_t<T>* mean, real_t<T>* rstd,
                       const T* x, const T* gamma, const T* beta, real_t<T> eps) {
  visit_held<T>(c, [&]<int kHeld>() {
    gpu::launch(stream, gpu::warp_per_row(n), layernorm_forward_kernel<T, kHeld>, n, c, y, mean, rstd, x, gamma, beta,
                eps);
  });
}

template <class T>
void layernorm_backward(const Stream& stream, std::int64_t n, std::int64_t c, T* dx, bool accumulate, real_t<T>* dgamma,
                        bool add_gamma, real_t<T>* dbeta, bool add_beta, const T* dy, const T* x, const real_t<T>* mean,
                        const real_t<T>* rstd, const T* gamma, T* derivative, real_t<T>* sums, bool add_sums) {
  using R = real_t<T>;
  const auto run = [&]<int kHeld, int kSums>(const gpu::ColumnSums<R, kSums>& to) {
    constexpr int kWarps = kBackwardWarps<kHeld>;
    // As many warps in either case; whole blocks fill any GPU once.
    constexpr std::int64_t kMost = gpu::kManyBlocks * gpu::kRowWarps / kWarps;
    const std::int64_t blocks = std::clamp<std::int64_t>(gpu::ceil_div(n, kWarps), 1, kMost);
    R* partials = nullptr;
    if (kHeld > 0 && (dgamma != nullptr || sums != nullptr)) partials = gpu::scratch<R>(stream, blocks * kSums * c);
    if (dx != nullptr || partials != nullptr)
      gpu::launch(stream, {.grid = blocks, .block = {kWarp, kWarps}}, layernorm_backward_kernel<T, kHeld, kSums>, n, c,
                  dx, accumulate, derivative, to, partials, gpu::block_counters(stream), dy, x, mean, rstd, gamma);
    if (kHeld > 0) {
      if (partials != nullptr && kWarps < kWarp) gpu::add_partials(stream, blocks, c, to, partials, kSums * c);
      return;
    }
    const gpu::ColumnSums<R, 2> parameters{{dgamma, dbeta}, {add_gamma, add_beta}};
    if (dgamma != nullptr) gpu::column_sums(stream, n, c, parameters, LongRows<T>{dy, x, mean, rstd, c});
    const gpu::ColumnSums<R, 1> rest{{sums}, {add_sums}};
    if (sums != nullptr)
      gpu::column_sums(stream, n, c, rest, gpu::Plain<T>{derivative != nullptr ? derivative : dx, c});
  };
  visit_held<T>(c, [&]<int kHeld>() {
    if (sums == nullptr)
      run.template operator()<kHeld, 2>({{dgamma, dbeta}, {add_gamma, add_beta}});
    else
      run.template operator()<kHeld, 3>({{dgamma, dbeta, sums}, {add_gamma, add_beta, add_sums}});
  });
}

LOCKSTEP_EACH_STORAGE(layernorm_forward, layernorm_backward)

}  // namespace lockstep::ops::cuda
