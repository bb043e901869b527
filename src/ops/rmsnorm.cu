#include "lockstep/ops/rmsnorm.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops {

/// to = (y + a) + b, where y is the result of a norm. b may be null. A null `to` means no sum.
template <class T>
struct RowSum {
  T* to;
  const T *a, *b;
};

}  // namespace lockstep::ops

namespace lockstep::ops::cpu {

template <class T>
struct RmsnormKernels {
  /// rstd may be null.
  void (*forward)(std::int64_t rows, std::int64_t columns, T* y, T* rstd, const T* x, T eps, RowSum<T> sum);
  /// Adds to dx if the flag is set, else stores.
  void (*backward)(std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy, const T* y, const T* rstd);
};

LOCKSTEP_KERNELS(RmsnormKernels, rmsnorm_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Two passes over a row, which stays in the first-level cache.
template <class T>
void forward(std::int64_t rows, std::int64_t columns, T* y, T* rstd, const T* x, T eps, RowSum<T> sum) {
  for (std::int64_t i = 0; i < rows; ++i, y += columns, x += columns) {
    Vec<T> squares{};
    for_vectors<T>(columns, [&](const auto& get, const auto&) {
      const Vec<T> v = get(x);
      squares = fma(v, v, squares);
    });
    const T scale = T{1} / root(total<T>(squares) / static_cast<T>(columns) + eps);
    if (rstd) rstd[i] = scale;
    for_vectors<T>(columns, [&](const auto& get, const auto& put) {
      const Vec<T> v = get(x) * splat(scale);
      put(y, v);
      if (sum.to) put(sum.to, sum.b ? v + get(sum.a) + get(sum.b) : v + get(sum.a));
    });
    if (!sum.to) continue;
    sum.to += columns;
    sum.a += columns;
    if (sum.b) sum.b += columns;
  }
}

template <class T>
void backward(std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy, const T* y, const T* rstd) {
  for (std::int64_t i = 0; i < rows; ++i, y += columns, dy += columns, dx += columns) {
    Vec<T> products{};
    for_vectors<T>(columns, [&](const auto& get, const auto&) { products = fma(get(y), get(dy), products); });
    const Vec<T> mean = splat(-total<T>(products) / static_cast<T>(columns)), scale = splat(rstd[i]);
    for_vectors<T>(columns, [&](const auto& get, const auto& put) {
      const Vec<T> dv = scale * fma(get(y), mean, get(dy));
      put(dx, add ? get(dx) + dv : dv);
    });
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(RmsnormKernels, rmsnorm_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;
using gpu::Pack;

/// The packs of N elements of a row that a lane of a warp has: every 32nd. kHeld of them are in registers, as
/// real_t<T>. With kHeld = 0 the row may have any length and is read again from the caches.
template <class R, int N, int kHeld>
class LaneRow {
 public:
  template <class Read>
  __device__ LaneRow(std::int64_t columns, int lane, const Read& read) : columns_(columns), first_(lane * N) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) held_[i] = at(i) < columns ? read(at(i)) : Pack<R, N>{};
    }
  }
  /// Calls f(column, pack) for each pack; `read` as before.
  template <class Read, class F>
  __device__ void each(const Read& read, const F& f) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (at(i) < columns_) f(at(i), held_[i]);
    } else {
      for (std::int64_t c = first_; c < columns_; c += kWarp * N) f(c, read(c));
    }
  }

 private:
  __device__ std::int64_t at(int i) const { return first_ + i * kWarp * N; }
  std::int64_t columns_;
  std::int64_t first_;
  Pack<R, N> held_[kHeld > 0 ? kHeld : 1];
};

/// One warp per row. Memory bound: a row of C columns costs 2 C elements (x and y), and 2 C or 3 C more with a sum.
template <class T, int N, int kHeld>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    rmsnorm_forward_kernel(gpu::Earlier earlier, std::int64_t rows, std::int64_t columns, T* y, real_t<T>* rstd,
                           const T* x, real_t<T> eps, RowSum<T> sum) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t row = gpu::warp_row(), begin = row * columns;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const auto read = [&](std::int64_t c) { return gpu::load<N>(x + begin + c); };
  const LaneRow<R, N, kHeld> values(columns, lane, read);
  R squares = 0;
  values.each(read, [&](std::int64_t, const Pack<R, N>& v) {
#pragma unroll
    for (int k = 0; k < N; ++k) squares += v.at[k] * v.at[k];
  });
  const R scale = 1 / std::sqrt(gpu::warp_reduce(squares) / static_cast<R>(columns) + eps);
  values.each(read, [&](std::int64_t c, Pack<R, N> v) {
#pragma unroll
    for (int k = 0; k < N; ++k) v.at[k] *= scale;
    gpu::store(y + begin + c, v);
    if (sum.to == nullptr) return;
    for (const T* term : {sum.a, sum.b}) {
      if (term == nullptr) continue;
      const Pack<R, N> more = gpu::load<N>(term + begin + c);
#pragma unroll
      for (int k = 0; k < N; ++k) v.at[k] += more.at[k];
    }
    gpu::store(sum.to + begin + c, v);
  });
  if (rstd && lane == 0) rstd[row] = scale;
}

/// One warp per row. Memory bound: reads y and dy once, writes (or reads and writes) dx. dy may be the memory of dx,
/// because a lane reads an element before it writes it.
template <class T, int N, int kHeld>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    rmsnorm_backward_kernel(gpu::Earlier earlier, std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy,
                            const T* __restrict__ y, const real_t<T>* __restrict__ rstd) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t row = gpu::warp_row(), begin = row * columns;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const auto read_dy = [&](std::int64_t c) { return gpu::load<N>(dy + begin + c); };
  const LaneRow<R, N, kHeld> slopes(columns, lane, read_dy);
  R products = 0;
  slopes.each(read_dy, [&](std::int64_t c, const Pack<R, N>& d) {
    const Pack<R, N> v = gpu::load<N>(y + begin + c);
#pragma unroll
    for (int k = 0; k < N; ++k) products += v.at[k] * d.at[k];
  });
  const R mean = gpu::warp_reduce(products) / static_cast<R>(columns), scale = rstd[row];
  slopes.each(read_dy, [&](std::int64_t c, Pack<R, N> d) {
    const Pack<R, N> v = gpu::load<N>(y + begin + c);  // from the first-level cache
    const Pack<R, N> before = add ? gpu::load<N>(dx + begin + c) : Pack<R, N>{};
#pragma unroll
    for (int k = 0; k < N; ++k) d.at[k] = before.at[k] + scale * (d.at[k] - v.at[k] * mean);
    gpu::store(dx + begin + c, d);
  });
}

/// Calls run.template operator()<N, kHeld>() with the widest packs and the fewest registers that the rows allow.
template <class T, class F>
void for_rows(std::int64_t columns, bool packed, const F& run) {
  constexpr int kPack = gpu::pack_size<T>();
  if (!packed || columns % kPack != 0)
    return columns <= 8 * kWarp ? run.template operator()<1, 8>() : run.template operator()<1, 0>();
  const std::int64_t packs = gpu::ceil_div(columns, kWarp * kPack);
  if (packs <= 1) return run.template operator()<kPack, 1>();
  if (packs <= 2) return run.template operator()<kPack, 2>();
  if (packs <= 4) return run.template operator()<kPack, 4>();
  if (packs <= 8) return run.template operator()<kPack, 8>();
  run.template operator()<kPack, 0>();
}

template <class T>
RowSum<T> row_sum(const NormSum& sum) {
  return {sum.to, sum.a, sum.b};
}
}  // namespace

void rmsnorm_forward(Stream& stream, const Tensor& y, const Tensor& rstd, const Tensor& x, double eps,
                     const NormSum& sum) {
  require(y.shape() == x.shape(), "rmsnorm: x is ", x.shape(), ", so y must be too, not ", y.shape());
  require(!rstd || rstd.size() == x.rows(), "rmsnorm: x is ", x.shape(), ", so rstd must have ", x.rows(),
          " elements, not ", rstd.size());
  require(
      !sum.to || (sum.to.shape() == x.shape() && sum.a.shape() == x.shape() && (!sum.b || sum.b.shape() == x.shape())),
      "rmsnorm: x is ", x.shape(), ", so a sum and what it adds must be too, not ", sum.to.shape(), ", ", sum.a.shape(),
      " and ", sum.b.shape());
  on_gpu(x, [&]<class T>() {
    for_rows<T>(x.columns(), gpu::packable(gpu::pack_size<T>(), {y, x, sum.to, sum.a, sum.b}), [&]<int N, int kHeld>() {
      gpu::launch(stream, gpu::warp_per_row(x.rows()), rmsnorm_forward_kernel<T, N, kHeld>, x.rows(), x.columns(),
                  y.data<T>(), rstd.data<real_t<T>>(), x.data<T>(), static_cast<real_t<T>>(eps), row_sum<T>(sum));
    });
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().forward(x.rows(), x.columns(), y, rstd, x, static_cast<T>(eps), row_sum<T>(sum));
  });
}

void rmsnorm_backward(Stream& stream, Target dx, const Tensor& dy, const Tensor& y, const Tensor& rstd) {
  if (!dx) return;
  require(dy.shape() == y.shape() && rstd.size() == y.rows() && dx.tensor.shape() == y.shape(),
          "rmsnorm backward: y is ", y.shape(), ", dy ", dy.shape(), ", dx ", dx.tensor.shape(), ", rstd ",
          rstd.shape(), "; these do not fit together");
  on_gpu(y, [&]<class T>() {
    for_rows<T>(y.columns(), gpu::packable(gpu::pack_size<T>(), {dx.tensor, dy, y}), [&]<int N, int kHeld>() {
      gpu::launch(stream, gpu::warp_per_row(y.rows()), rmsnorm_backward_kernel<T, N, kHeld>, y.rows(), y.columns(),
                  dx.tensor.data<T>(), dx.accumulate, dy.data<T>(), y.data<T>(), rstd.data<real_t<T>>());
    });
  });
  on_cpu(y, [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().backward(y.rows(), y.columns(), dx.tensor, dx.accumulate, dy, y, rstd);
  });
}

}  // namespace lockstep::ops

#endif
