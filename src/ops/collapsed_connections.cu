#include "lockstep/ops/collapsed_connections.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

/// A site of ops/collapsed_connections.hpp and the shapes of its arrays.
template <class T>
struct Collapsed {
  std::int64_t rows, columns, n;
  const T *x, *f, *alpha, *weight, *bias;
};
/// The destinations of the gradients; null: not computed.
template <class T>
struct CollapsedGradients {
  T *dx, *df;
  real_t<T>*alpha, *weight, *bias;
};

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

template <class T>
void backward_on_gpu(const Stream& stream, const CollapsedGradients<T>& to, bool accumulate_dx, bool accumulate_df,
                     const T* dy, const Collapsed<T>& s) {
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

constexpr double kEps = 1e-12;

void check(const char* what, const Tensor& x, const Tensor& f, const Tensor& y, const CollapsedConnection& s) {
  const std::int64_t n = s.bias.size();
  require(f.shape() == x.shape() && y.shape() == x.shape() && s.weight.shape() == Shape{n, n * x.columns()}, what,
          ": x is ", x.shape(), ", f ", f.shape(), ", y or dy ", y.shape(), ", the weight ", s.weight.shape(),
          ", its bias ", s.bias.shape());
}

template <class T>
Collapsed<T> collapsed(const Tensor& x, const Tensor& f, const CollapsedConnection& s) {
  return {x.rows(), x.columns(), s.bias.size(), x, f, s.alpha, s.weight, s.bias};
}

/// Computes one row at a time, in the type of the arrays.
template <class T>
struct Mixer : Collapsed<T> {
  explicit Mixer(const Collapsed<T>& site) : Collapsed<T>(site) {}

  T rms(const T* row) const {
    T squares = 0;
    for (std::int64_t k = 0; k < this->columns; ++k) squares += row[k] * row[k];
    return std::sqrt(squares / static_cast<T>(this->columns));
  }
  /// W_m r + b_m, where r is n copies of row / scale.
  T mix(std::int64_t m, const T* row, T scale) const {
    T sum = 0;
    for (std::int64_t s = 0; s < this->n; ++s) {
      for (std::int64_t k = 0; k < this->columns; ++k)
        sum += this->weight[(m * this->n + s) * this->columns + k] * row[k];
    }
    return sum / scale + this->bias[m];
  }
  T sigmoid(T a) const { return 1 / (1 + std::exp(-*this->alpha * a)); }
};

template <class T>
void forward(const Mixer<T>& s, T* y) {
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const T* x = s.x + i * s.columns;
    const T scale = s.rms(x) + static_cast<T>(kEps);
    T g = 0;
    for (std::int64_t m = 0; m < s.n; ++m) g += 2 * s.sigmoid(s.mix(m, x, scale));
    for (std::int64_t k = 0; k < s.columns; ++k)
      y[i * s.columns + k] = static_cast<T>(s.n) * x[k] + g * s.f[i * s.columns + k];
  }
}

template <class T>
void backward(const Mixer<T>& s, const T* dy, const CollapsedGradients<T>& to, bool accumulate_dx, bool accumulate_df) {
  const auto n = static_cast<T>(s.n);
  const std::int64_t columns = s.columns;
  // The derivative with respect to x / scale.
  T* const slope = cpu::thread_scratch<T>(cpu::Scratch::tables, columns);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const T *x = s.x + i * columns, *f = s.f + i * columns, *dyi = dy + i * columns;
    const T rms = s.rms(x), scale = rms + static_cast<T>(kEps);
    T dg = 0, g = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      dg += dyi[k] * f[k];
      slope[k] = 0;
    }
    for (std::int64_t m = 0; m < s.n; ++m) {
      const T a = s.mix(m, x, scale), p = s.sigmoid(a);
      g += 2 * p;
      const T dz = dg * 2 * p * (1 - p), da = *s.alpha * dz;
      if (to.alpha != nullptr) *to.alpha += dz * a;
      if (to.bias != nullptr) to.bias[m] += da;
      for (std::int64_t at = 0; at < s.n * columns; ++at) {
        const std::int64_t k = at % columns;
        slope[k] += da * s.weight[m * s.n * columns + at];
        if (to.weight != nullptr) to.weight[m * s.n * columns + at] += da * (x[k] / scale);
      }
    }
    T along = 0;
    for (std::int64_t k = 0; k < columns; ++k) along += slope[k] * x[k];
    const T bend = rms > 0 ? along / (scale * scale * rms * static_cast<T>(columns)) : T{0};
    const auto put = [&](T* row, bool accumulate, std::int64_t k, T value) {
      if (row != nullptr) row[i * columns + k] = value + (accumulate ? row[i * columns + k] : T{0});
    };
    for (std::int64_t k = 0; k < columns; ++k) {
      put(to.dx, accumulate_dx, k, n * dyi[k] + slope[k] / scale - bend * x[k]);
      put(to.df, accumulate_df, k, g * dyi[k]);
    }
  }
}

}  // namespace

void collapsed_connection_forward(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& f,
                                  const CollapsedConnection& site) {
  check("collapsed_connection", x, f, y, site);
  on_gpu(x, [&]<class T>() {
    launch(stream, warp_per_row(x.rows()), forward_kernel<T>, collapsed<T>(x, f, site), y.data<T>());
  });
  on_cpu(x, [&]<class T>() { forward(Mixer<T>(collapsed<T>(x, f, site)), y.data<T>()); });
}

void collapsed_connection_backward(Stream& stream, Target dx, Target df, const CollapsedConnection& gradients,
                                   const Tensor& dy, const Tensor& x, const Tensor& f,
                                   const CollapsedConnection& site) {
  check("collapsed_connection backward", x, f, dy, site);
  const auto targets = [&]<class T>() {
    return CollapsedGradients<T>{dx.tensor, df.tensor, gradients.alpha, gradients.weight, gradients.bias};
  };
  on_gpu(x, [&]<class T>() {
    backward_on_gpu<T>(stream, targets.template operator()<T>(), dx.accumulate, df.accumulate, dy,
                       collapsed<T>(x, f, site));
  });
  on_cpu(x, [&]<class T>() {
    backward(Mixer<T>(collapsed<T>(x, f, site)), dy.data<T>(), targets.template operator()<T>(), dx.accumulate,
             df.accumulate);
  });
}

}  // namespace lockstep::ops
