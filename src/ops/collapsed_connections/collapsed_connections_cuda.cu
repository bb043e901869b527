#include "collapsed_connections_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/column_sums_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// A warp's row: its norm and its products with the site's weights. Reads n n C weights from L2 for each row: this op
/// exists to agree with public code, not for speed.
template <class T>
struct Row {
  using R = real_t<T>;
  const Collapsed<T>& s;
  const T* x;
  R rms, scale;
  __device__ Row(const Collapsed<T>& site, std::int64_t i) : s(site), x(site.x + i * site.columns) {
    R squares = 0;
    for (std::int64_t k = threadIdx.x; k < s.columns; k += kWarp) squares += load(x + k) * load(x + k);
    rms = sqrt(warp_reduce(squares) / static_cast<R>(s.columns));
    scale = rms + static_cast<R>(1e-12);
  }
  /// The sum over the copies of the weight of channel k in W_m.
  __device__ R weight(std::int64_t m, std::int64_t k) const {
    R sum = 0;
    for (std::int64_t copy = 0; copy < s.n; ++copy) sum += load(s.weight + (m * s.n + copy) * s.columns + k);
    return sum;
  }
  __device__ R mix(std::int64_t m) const {
    R sum = 0;
    for (std::int64_t k = threadIdx.x; k < s.columns; k += kWarp) sum += weight(m, k) * load(x + k);
    return warp_reduce(sum) / scale + load(s.bias + m);
  }
  __device__ R sigmoid(R a) const { return 1 / (1 + exp(-load(s.alpha) * a)); }
};

/// One warp per row: the norm, the gate g and y.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowWarps)
    forward_kernel(gpu::Earlier earlier, Collapsed<T> s, T* __restrict__ y) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t i = warp_row();
  if (i >= s.rows) return;
  const Row<T> row(s, i);
  R g = 0;
  for (std::int64_t m = 0; m < s.n; ++m) g += 2 * row.sigmoid(row.mix(m));
  for (std::int64_t k = threadIdx.x; k < s.columns; k += kWarp)
    store(y + i * s.columns + k, static_cast<R>(s.n) * load(row.x + k) + g * load(s.f + i * s.columns + k));
}

/// One warp per row. Computes dx and df of a row, and the values that the site's gradients are sums of: da (N, n), the
/// derivatives with respect to a_m = W_m r + b_m; by_alpha (N), the derivative with respect to alpha; and 1 / scale
/// (N).
template <class T>
__global__ void __launch_bounds__(kWarp* kRowWarps)
    backward_kernel(gpu::Earlier earlier, Collapsed<T> s, CollapsedGradients<T> to, bool accumulate_dx,
                    bool accumulate_df, real_t<T>* da, real_t<T>* __restrict__ by_alpha,
                    real_t<T>* __restrict__ inverse, const T* __restrict__ dy) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t i = warp_row();
  if (i >= s.rows) return;
  const Row<T> row(s, i);
  const std::int64_t at = i * s.columns;
  R product = 0;
  for (std::int64_t k = threadIdx.x; k < s.columns; k += kWarp) product += load(dy + at + k) * load(s.f + at + k);
  const R dg = warp_reduce(product);
  R g = 0, alpha = 0;
  for (std::int64_t m = 0; m < s.n; ++m) {
    const R a = row.mix(m), p = row.sigmoid(a), dz = dg * 2 * p * (1 - p);
    g += 2 * p;
    alpha += dz * a;
    if (threadIdx.x == 0) da[i * s.n + m] = load(s.alpha) * dz;
  }
  if (threadIdx.x == 0) {
    by_alpha[i] = alpha;
    inverse[i] = 1 / row.scale;
  }
  __syncwarp();
  const auto slope = [&](std::int64_t k) {
    R sum = 0;
    for (std::int64_t m = 0; m < s.n; ++m) sum += da[i * s.n + m] * row.weight(m, k);
    return sum;
  };
  R along = 0;
  for (std::int64_t k = threadIdx.x; k < s.columns; k += kWarp) along += slope(k) * load(row.x + k);
  along = warp_reduce(along);
  const R bend = row.rms > 0 ? along / (row.scale * row.scale * row.rms * static_cast<R>(s.columns)) : R{0};
  for (std::int64_t k = threadIdx.x; k < s.columns; k += kWarp) {
    const R d = load(dy + at + k);
    if (to.dx != nullptr)
      store(to.dx + at + k, static_cast<R>(s.n) * d + slope(k) / row.scale - bend * load(row.x + k), accumulate_dx);
    if (to.df != nullptr) store(to.df + at + k, g * d, accumulate_df);
  }
}

/// The term of column m C + k: da_m x_k / scale.
template <class T>
struct ByWeight {
  const real_t<T>* da;
  const T* x;
  const real_t<T>* inverse;
  std::int64_t columns, n;
  __device__ void add(std::int64_t row, std::int64_t column, real_t<T> (&sum)[1]) const {
    sum[0] += da[row * n + column / columns] * (load(x + row * columns + column % columns) * inverse[row]);
  }
};

/// dW (n, n, C) += by_copy (n, C): all copies have the same gradient. One thread per element of dW.
template <class T>
__global__ void __launch_bounds__(256) add_to_copies_kernel(gpu::Earlier earlier, std::int64_t n, std::int64_t columns,
                                                            T* __restrict__ dweight, const T* __restrict__ by_copy) {
  earlier.wait();
  const std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e < n * n * columns) dweight[e] += by_copy[e / (n * columns) * columns + e % columns];
}

}  // namespace

template <class T>
void collapsed_connection_forward(const Stream& stream, T* y, const Collapsed<T>& s) {
  launch(stream, warp_per_row(s.rows), forward_kernel<T>, s, y);
}

template <class T>
void collapsed_connection_backward(const Stream& stream, const CollapsedGradients<T>& to, bool accumulate_dx,
                                   bool accumulate_df, const T* dy, const Collapsed<T>& s) {
  if (s.rows == 0) return;
  using R = real_t<T>;
  const std::int64_t products = s.n * s.columns, own = s.rows * (s.n + 2) + products;
  const std::size_t sums = std::max({column_sums_bytes<R, 1>(s.rows, products), column_sums_bytes<R, 1>(s.rows, s.n),
                                     column_sums_bytes<R, 1>(s.rows, 1)});
  R* const da = reinterpret_cast<R*>(scratch(stream, static_cast<std::size_t>(own) * sizeof(R) + sums));
  R *const by_alpha = da + s.rows * s.n, *const inverse = by_alpha + s.rows, *const by_copy = inverse + s.rows;
  auto* const partials = reinterpret_cast<std::byte*>(da + own);
  launch(stream, warp_per_row(s.rows), backward_kernel<T>, s, to, accumulate_dx, accumulate_df, da, by_alpha, inverse,
         dy);
  if (to.alpha != nullptr)
    column_sums(stream, s.rows, 1, ColumnSums<R, 1>{{to.alpha}, {true}}, Plain<R>{by_alpha, 1}, partials);
  if (to.bias != nullptr)
    column_sums(stream, s.rows, s.n, ColumnSums<R, 1>{{to.bias}, {true}}, Plain<R>{da, s.n}, partials);
  if (to.weight == nullptr) return;
  column_sums(stream, s.rows, products, ColumnSums<R, 1>{{by_copy}, {false}},
              ByWeight<T>{da, s.x, inverse, s.columns, s.n}, partials);
  launch(stream, thread_per_element(s.n * products), add_to_copies_kernel<R>, s.n, s.columns, to.weight, by_copy);
}

LOCKSTEP_EACH_STORAGE(collapsed_connection_forward, collapsed_connection_backward)

}  // namespace lockstep::ops::cuda
