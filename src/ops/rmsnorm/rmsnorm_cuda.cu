#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"
#include "rmsnorm_kernels.hpp"

namespace lockstep::ops::cuda {
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
      // mutant-equivalent: a pack behind the row is not used
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

}  // namespace

template <class T>
void rmsnorm_forward(const Stream& stream, std::int64_t rows, std::int64_t columns, T* y, real_t<T>* rstd, const T* x,
                     real_t<T> eps, RowSum<T> sum) {
  for_rows<T>(columns, gpu::aligned(y, x, sum.to, sum.a, sum.b), [&]<int N, int kHeld>() {
    gpu::launch(stream, gpu::warp_per_row(rows), rmsnorm_forward_kernel<T, N, kHeld>, rows, columns, y, rstd, x, eps,
                sum);
  });
}

template <class T>
void rmsnorm_backward(const Stream& stream, std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy,
                      const T* y, const real_t<T>* rstd) {
  for_rows<T>(columns, gpu::aligned(dx, dy, y), [&]<int N, int kHeld>() {
    gpu::launch(stream, gpu::warp_per_row(rows), rmsnorm_backward_kernel<T, N, kHeld>, rows, columns, dx, add, dy, y,
                rstd);
  });
}

LOCKSTEP_EACH_STORAGE(rmsnorm_forward, rmsnorm_backward)

}  // namespace lockstep::ops::cuda
