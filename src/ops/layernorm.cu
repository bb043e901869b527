#include "lockstep/ops/layernorm.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Serial kernels on N rows of C columns. mean and rstd may be null in the forward.
template <class T>
struct LayerNormKernels {
  void (*forward)(std::int64_t n, std::int64_t c, T* y, T* mean, T* rstd, const T* x, const T* gamma, const T* beta,
                  T eps);
  /// dx (unless null) is stored, or added if `accumulate`. dgamma and dbeta of these rows are added to sums (2 C),
  /// unless null.
  void (*backward)(std::int64_t n, std::int64_t c, T* dx, bool accumulate, T* sums, const T* dy, const T* x,
                   const T* mean, const T* rstd, const T* gamma);
};

LOCKSTEP_KERNELS(LayerNormKernels, layernorm_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// 1 in the lanes that exist, 0 in the others.
template <class T>
LOCKSTEP_INLINE Vec<T> ones(Lanes<T> lanes) {
  alignas(64) static constexpr T kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  return load(kOnes, lanes);
}

template <class T>
void forward(std::int64_t n, std::int64_t c, T* y, T* mean, T* rstd, const T* x, const T* gamma, const T* beta, T eps) {
  for (std::int64_t i = 0; i < n; ++i, x += c, y += c) {
    Vec<T> sum{}, squares{};
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) { sum += load(x + at, lanes); });
    const T m = total<T>(sum) / static_cast<T>(c);
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> d = (load(x + at, lanes) - splat(m)) * ones<T>(lanes);
      squares = fma(d, d, squares);
    });
    const T s = T{1} / root(total<T>(squares) / static_cast<T>(c) + eps);
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> h = (load(x + at, lanes) - splat(m)) * splat(s);
      store(y + at, fma(h, load(gamma + at, lanes), load(beta + at, lanes)), lanes);
    });
    if (mean) {
      mean[i] = m;
      rstd[i] = s;
    }
  }
}

template <class T>
void backward(std::int64_t n, std::int64_t c, T* dx, bool accumulate, T* sums, const T* dy, const T* x, const T* mean,
              const T* rstd, const T* gamma) {
  for (std::int64_t i = 0; i < n; ++i, x += c, dy += c) {
    const Vec<T> m = splat(mean[i]), s = splat(rstd[i]);
    Vec<T> sum_a{}, sum_ah{};
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> h = (load(x + at, lanes) - m) * s, d = load(dy + at, lanes), a = d * load(gamma + at, lanes);
      sum_a += a;
      sum_ah = fma(a, h, sum_ah);
      if (sums) {
        store(sums + at, fma(d, h, load(sums + at, lanes)), lanes);
        store(sums + c + at, load(sums + c + at, lanes) + d, lanes);
      }
    });
    if (!dx) continue;
    const Vec<T> mean_a = splat(total<T>(sum_a) / static_cast<T>(c)),
                 mean_ah = splat(total<T>(sum_ah) / static_cast<T>(c));
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> h = (load(x + at, lanes) - m) * s, a = load(dy + at, lanes) * load(gamma + at, lanes);
      const Vec<T> d = s * (a - mean_a - h * mean_ah);
      store(dx + at, accumulate ? load(dx + at, lanes) + d : d, lanes);
    });
    dx += c;
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(LayerNormKernels, layernorm_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>

#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
using gpu::Pack;

/// Elements of a row that a lane can hold in registers: rows of up to 1024 columns (512 in f64). Longer rows are read
/// again, from the caches.
template <class T>
constexpr int most_per_lane() {
  return sizeof(T) == 8 ? 16 : 32;
}

/// A row as a warp sees it, in packs of N columns: lane l has packs l, l + 32, ... With kHeld > 0 a lane holds kHeld of
/// them in registers; those of a null row are 0. Halves are loaded in pairs, so that a warp loads whole cache lines.
template <class T, int N, int kHeld>
class Row {
 public:
  using R = real_t<T>;
  __device__ Row(const T* x, std::int64_t columns, int lane) : x_(x), columns_(columns), lane_(lane) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        packs_[i] =
            x != nullptr && column(i) < columns ? *reinterpret_cast<const Pack<T, N>*>(x + column(i)) : Pack<T, N>{};
    }
  }
  /// Calls f(column, pack, i); i counts this lane's packs.
  template <class F>
  __device__ void each(const F& f) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (column(i) < columns_) f(std::int64_t{column(i)}, gpu::load<N>(packs_[i].at), i);
    } else {
      int i = 0;
      for (std::int64_t c = lane_ * N; c < columns_; c += kWarp * N) f(c, gpu::load<N>(x_ + c), i++);
    }
  }

  /// Pack i of this lane, which begins at column c.
  __device__ Pack<R, N> pack(std::int64_t c, int i) const {
    if constexpr (kHeld > 0)
      return gpu::load<N>(packs_[i].at);
    else
      return gpu::load<N>(x_ + c);
  }

 private:
  __device__ int column(int i) const { return (i * kWarp + lane_) * N; }
  const T* x_;
  std::int64_t columns_;
  int lane_;
  Pack<T, N> packs_[kHeld > 0 ? kHeld : 1];
};

/// One warp per row, read once; the variance is that of centred values. Memory bound: reads x, writes y.
template <class T, int N, int kHeld>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    layernorm_forward_kernel(gpu::Earlier earlier, std::int64_t rows, std::int64_t columns, T* y,
                             real_t<T>* __restrict__ mean, real_t<T>* __restrict__ rstd, const T* x,
                             const T* __restrict__ gamma, const T* __restrict__ beta, real_t<T> eps) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t row = gpu::warp_row();
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const Row<T, N, kHeld> values(x + row * columns, columns, lane);
  const R count = static_cast<R>(columns);
  R sum = 0, squares = 0;
  values.each([&](std::int64_t, const Pack<R, N>& v, int) {
#pragma unroll
    for (int k = 0; k < N; ++k) sum += v.at[k];
  });
  const R m = gpu::warp_reduce(sum) / count;
  values.each([&](std::int64_t, const Pack<R, N>& v, int) {
#pragma unroll
    for (int k = 0; k < N; ++k) squares += (v.at[k] - m) * (v.at[k] - m);
  });
  const R s = 1 / std::sqrt(gpu::warp_reduce(squares) / count + eps);
  T* to = y + row * columns;
  values.each([&](std::int64_t c, Pack<R, N> v, int) {
    const Pack<R, N> scale = gpu::load<N>(gamma + c), shift = gpu::load<N>(beta + c);
#pragma unroll
    for (int k = 0; k < N; ++k) v.at[k] = (v.at[k] - m) * s * scale.at[k] + shift.at[k];
    gpu::store(to + c, v);
  });
  if (mean != nullptr && lane == 0) {
    mean[row] = m;
    rstd[row] = s;
  }
}

/// Warps of a block of the backward pass, whose lanes hold so many elements. Short rows leave enough registers for
/// large blocks; the last block then adds the sums of all.
template <int kElements>
constexpr int kBackwardWarps = kElements > 0 && kElements <= 4 ? kWarp : gpu::kRowWarps;

/// One warp per row, row after row, so that the sums for gamma and beta and, if kSums is 3, of the rows of derivative
/// or dx stay in registers until the end; partials (blocks, kSums, C) receives those of each block, and with short rows
/// the last block adds them. dx, partials or derivative may be null. Memory bound: reads x and dy, writes dx.
template <class T, int N, int kHeld, int kSums>
__global__ void __launch_bounds__(kWarp* kBackwardWarps<N * kHeld>)
    layernorm_backward_kernel(gpu::Earlier earlier, std::int64_t rows, std::int64_t columns, T* dx, bool accumulate,
                              T* derivative, gpu::ColumnSums<real_t<T>, kSums> parameters, real_t<T>* partials,
                              unsigned* arrived, const T* dy, const T* __restrict__ x,
                              const real_t<T>* __restrict__ mean, const real_t<T>* __restrict__ rstd,
                              const T* __restrict__ gamma) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kWarps = kBackwardWarps<N * kHeld>;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const R count = static_cast<R>(columns);
  Pack<R, N> sums[kSums][kHeld > 0 ? kHeld : 1] = {};
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp; row < rows;
       row += std::int64_t{gridDim.x} * kWarps) {
    T *const to = dx + row * columns, *const also = derivative != nullptr ? derivative + row * columns : nullptr;
    // Loads begin here, so that none waits for the sums or for a store to another array. Long rows lack the registers.
    const Row<T, N, kHeld> values(x + row * columns, columns, lane), slopes(dy + row * columns, columns, lane);
    const Row<T, N, kHeld * sizeof(T) <= 32 ? kHeld : 0> before(accumulate ? to : nullptr, columns, lane),
        factors(also, columns, lane);
    const R m = mean[row], s = rstd[row];
    R sum_a = 0, sum_ah = 0;
    values.each([&](std::int64_t c, const Pack<R, N>& v, int i) {
      const Pack<R, N> scale = gpu::load<N>(gamma + c), g = slopes.pack(c, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const R h = (v.at[k] - m) * s, a = g.at[k] * scale.at[k];
        sum_a += a;
        sum_ah += a * h;
        if constexpr (kHeld > 0) {
          sums[0][i].at[k] += g.at[k] * h;
          sums[1][i].at[k] += g.at[k];
        }
      }
    });
    if (dx == nullptr) continue;
    const R mean_a = gpu::warp_reduce(sum_a) / count, mean_ah = gpu::warp_reduce(sum_ah) / count;
    values.each([&](std::int64_t c, const Pack<R, N>& v, int i) {
      const Pack<R, N> scale = gpu::load<N>(gamma + c), g = slopes.pack(c, i);
      Pack<R, N> value, start{};
      if (accumulate) start = before.pack(c, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        value.at[k] = s * (g.at[k] * scale.at[k] - mean_a - (v.at[k] - m) * s * mean_ah);
        if (accumulate) value.at[k] += start.at[k];
      }
      gpu::store(to + c, value);
      if (also != nullptr) {
        const Pack<R, N> factor = factors.pack(c, i);
#pragma unroll
        for (int k = 0; k < N; ++k) value.at[k] *= factor.at[k];
        gpu::store(also + c, value);
      }
      if constexpr (kHeld > 0 && kSums > 2) {
#pragma unroll
        for (int k = 0; k < N; ++k) sums[2][i].at[k] += value.at[k];
      }
    });
  }
  if constexpr (kHeld > 0) {
    if (partials == nullptr) return;
    __shared__ R sm_sums[kWarps][kHeld * kWarp * N];
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      __syncthreads();  // the previous sums have been read
#pragma unroll
      for (int e = 0; e < kHeld * N; ++e) sm_sums[warp][(e / N * kWarp + lane) * N + e % N] = sums[k][e / N].at[e % N];
      __syncthreads();
      for (std::int64_t c = warp * kWarp + lane; c < columns; c += kWarp * kWarps) {
        R total = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total += sm_sums[w][c];
        partials[(std::int64_t{blockIdx.x} * kSums + k) * columns + c] = total;
      }
    }
    if constexpr (kWarps == kWarp) {
      if (!gpu::is_last_block(arrived, gridDim.x)) return;
      const int n = static_cast<int>(columns);
      gpu::add_partials<kWarps>(gridDim.x, kSums * n, static_cast<const R*>(partials), kSums * columns,
                                [&](int i, R sum) { parameters.put_at(i / n, i % n, sum); });
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

/// Calls f.template operator()<N, kHeld>() for rows of this length.
template <class T, int N, class F>
void visit_packs(std::int64_t columns, const F& f) {
  const std::int64_t per_lane = gpu::ceil_div(columns, kWarp * N) * N;
  if (per_lane > most_per_lane<T>()) return f.template operator()<N, 0>();
  if constexpr (most_per_lane<T>() == 32) {
    if (per_lane > 16) return f.template operator()<N, 32 / N>();
  }
  if (per_lane > 8) return f.template operator()<N, 16 / N>();
  if (per_lane > 4) return f.template operator()<N, 8 / N>();
  if (per_lane > 2) return f.template operator()<N, 4 / N>();
  f.template operator()<N, 2 / N>();
}
/// The same, with the N that the length and the addresses of the rows allow.
template <class T, class F, class... P>
void visit_held(std::int64_t columns, const F& f, const P*... rows) {
  if constexpr (sizeof(T) == 2) {
    if (columns % 2 == 0 && gpu::aligned_for<2>(rows...)) return visit_packs<T, 2>(columns, f);
  }
  visit_packs<T, 1>(columns, f);
}

}  // namespace

template <class T>
void layernorm_forward(const Stream& stream, std::int64_t n, std::int64_t c, T* y, real_t<T>* mean, real_t<T>* rstd,
                       const T* x, const T* gamma, const T* beta, real_t<T> eps) {
  visit_held<T>(
      c,
      [&]<int N, int kHeld>() {
        gpu::launch(stream, gpu::warp_per_row(n), layernorm_forward_kernel<T, N, kHeld>, n, c, y, mean, rstd, x, gamma,
                    beta, eps);
      },
      y, x, gamma, beta);
}

template <class T>
void layernorm_backward(const Stream& stream, std::int64_t n, std::int64_t c, T* dx, bool accumulate, real_t<T>* dgamma,
                        bool add_gamma, real_t<T>* dbeta, bool add_beta, const T* dy, const T* x, const real_t<T>* mean,
                        const real_t<T>* rstd, const T* gamma, T* derivative, real_t<T>* sums, bool add_sums) {
  using R = real_t<T>;
  const auto run = [&]<int N, int kHeld, int kSums>(const gpu::ColumnSums<R, kSums>& to) {
    constexpr int kWarps = kBackwardWarps<N * kHeld>;
    // As many warps in either case; whole blocks fill any GPU once.
    constexpr std::int64_t kMost = gpu::kManyBlocks * gpu::kRowWarps / kWarps;
    const std::int64_t blocks = std::clamp<std::int64_t>(gpu::ceil_div(n, kWarps), 1, kMost);
    R* partials = nullptr;
    if (kHeld > 0 && (dgamma != nullptr || sums != nullptr)) partials = gpu::scratch<R>(stream, blocks * kSums * c);
    if (dx != nullptr || partials != nullptr)
      gpu::launch(stream, {.grid = blocks, .block = {kWarp, kWarps}}, layernorm_backward_kernel<T, N, kHeld, kSums>, n,
                  c, dx, accumulate, derivative, to, partials, gpu::block_counters(stream), dy, x, mean, rstd, gamma);
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
  visit_held<T>(
      c,
      [&]<int N, int kHeld>() {
        if (sums == nullptr)
          run.template operator()<N, kHeld, 2>({{dgamma, dbeta}, {add_gamma, add_beta}});
        else
          run.template operator()<N, kHeld, 3>({{dgamma, dbeta, sums}, {add_gamma, add_beta, add_sums}});
      },
      dx, dy, x, gamma, derivative);
}

}  // namespace lockstep::ops::cuda

namespace lockstep::ops {

namespace {
void check(const char* what, const Tensor& x, const Tensor& y, const Tensor& vector) {
  require(y.shape() == x.shape(), what, ": x is ", x.shape(), ", so the other rows must be too, not ", y.shape());
  require(vector.shape() == Shape{x.columns()}, what, ": x is ", x.shape(), ", so gamma and beta must be (",
          x.columns(), "), not ", vector.shape());
}
}  // namespace

void layernorm_forward(Stream& stream, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& gamma, const Tensor& beta, double eps) {
  check("layernorm", x, y, gamma);
  check("layernorm", x, y, beta);
  require(!mean == !rstd && (!mean || (mean.size() == x.rows() && rstd.size() == x.rows())), "layernorm: x is ",
          x.shape(), ", so mean and rstd must have ", x.rows(), " elements each");
  on_gpu(x, [&]<class T>() {
    using R = real_t<T>;
    cuda::layernorm_forward<T>(stream, x.rows(), x.columns(), y, mean, rstd, x, gamma, beta, static_cast<R>(eps));
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_layernorm_kernels<T>().forward(x.rows(), x.columns(), y, mean, rstd, x, gamma, beta,
                                               static_cast<T>(eps));
  });
}

void layernorm_backward(Stream& stream, Target dx, Target dgamma, Target dbeta, const Tensor& dy, const Tensor& x,
                        const Tensor& mean, const Tensor& rstd, const Tensor& gamma, const Tensor& derivative,
                        Target sums) {
  check("layernorm backward", x, dy, gamma);
  require(!dx || dx.tensor.shape() == x.shape(), "layernorm backward: x is ", x.shape(), ", so dx must be too, not ",
          dx.tensor.shape());
  require(!dgamma == !dbeta, "layernorm backward: dgamma and dbeta must be both present or both empty");
  require(x.rows() == 0 || dx || (!derivative && !sums), "layernorm backward: derivative and sums require dx");
  require((!derivative || derivative.shape() == x.shape()) && (!sums || sums.tensor.shape() == gamma.shape()),
          "layernorm backward: x is ", x.shape(), ", so derivative must be too, not ", derivative.shape(),
          ", and sums must be ", gamma.shape(), ", not ", sums.tensor.shape());
  const std::int64_t rows = x.rows(), columns = x.columns();
  on_gpu(x, [&]<class T>() {
    cuda::layernorm_backward<T>(stream, rows, columns, dx.tensor, dx.accumulate, dgamma.tensor, dgamma.accumulate,
                                dbeta.tensor, dbeta.accumulate, dy, x, mean, rstd, gamma, derivative, sums.tensor,
                                sums.accumulate);
  });
  on_cpu(x, [&]<class T>() {
    T* partial = dgamma ? cpu::thread_scratch<T>(cpu::Scratch::partial, 2 * columns) : nullptr;
    for (const Target* t : {&dgamma, &dbeta})
      if (*t && !t->accumulate) std::fill_n(t->tensor.template data<T>(), columns, T{});
    for (std::int64_t first = 0; first < rows; first += kTnRows) {
      if (partial) std::fill_n(partial, 2 * columns, T{});
      const std::int64_t at = first * columns;
      cpu::active_layernorm_kernels<T>().backward(
          std::min(kTnRows, rows - first), columns, dx ? dx.tensor.data<T>() + at : nullptr, dx.accumulate, partial,
          dy.data<T>() + at, x.data<T>() + at, mean.data<T>() + first, rstd.data<T>() + first, gamma);
      for (std::int64_t c = 0; partial && c < columns; ++c) {
        dgamma.tensor.data<T>()[c] += partial[c];
        dbeta.tensor.data<T>()[c] += partial[columns + c];
      }
    }
    T *const to = dx.tensor.data<T>(), *const slope = derivative.data<T>();
    cpu::scale_and_sum<T>(rows, columns, slope ? slope : to, slope ? to : nullptr, sums.tensor, sums.accumulate);
  });
}

}  // namespace lockstep::ops

#endif
