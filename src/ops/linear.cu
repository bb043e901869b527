#include "lockstep/ops/linear.hpp"

#include <algorithm>

#include "lockstep/ops/dropout.hpp"
#include "ops/activation/activation_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/drawn_map_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

/// M rows, N outputs, K inputs.
struct LinearShape {
  std::int64_t m, n, k;
};

LinearShape shape_of(const char* what, const Tensor& x, const Tensor& weight) {
  require(weight.shape().rank() == 2 && weight.columns() == x.columns(), what, ": x is ", x.shape(),
          ", so weight must be (N, ", x.columns(), "), not ", weight.shape());
  return {x.rows(), weight.shape()[0], weight.shape()[1]};
}
void check_output(const char* what, const char* which, const Tensor& t, const LinearShape& s) {
  require(!t || (t.rows() == s.m && t.columns() == s.n), what, ": ", which, " must have ", s.m, " rows of ", s.n,
          ", not the shape ", t.shape());
}
}  // namespace

namespace cuda {
namespace {

/// The pass after a product: y = residual + f(y + bias) in place, with dropout, and the derivative. Memory bound: one
/// pass over y.
template <class T, class Op>
struct Activate {
  T* y;
  T* derivative;
  const T *bias, *residual;
  std::int64_t n;
  using R = real_t<T>;
  template <int N>
  struct Values {
    gpu::Pack<R, N> value, start, base;
  };
  template <int N>
  __device__ void at(std::int64_t i) const {
    write<N>(i, read<N>(i), [](int, R x) { return x; });
  }
  template <int N>
  __device__ Values<N> read(std::int64_t i) const {
    Values<N> v{gpu::load<N>(y + i), {}, {}};
    if (bias != nullptr) v.start = gpu::load<N>(bias + gpu::remainder(i, n));
    if (residual != nullptr) v.base = gpu::load<N>(residual + i);
    return v;
  }
  template <int N, class Keep>
  __device__ void write(std::int64_t i, const Values<N>& v, const Keep& keep) const {
    gpu::Pack<R, N> value, slope;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Op::apply(v.value.at[k] + v.start.at[k], value.at[k], slope.at[k]);
      value.at[k] = v.base.at[k] + keep(k, value.at[k]);
      slope.at[k] = keep(k, slope.at[k]);
    }
    gpu::store(y + i, value);
    if (derivative != nullptr) gpu::store(derivative + i, slope);
  }
  __device__ void behind(std::int64_t i) const {
    gpu::store(y + i, residual != nullptr ? gpu::load(residual + i) : R{0});
    if (derivative != nullptr) gpu::store(derivative + i, R{0});
  }
};

/// Multiplies dy by the derivative.
template <class T>
struct Scaled {
  T* dy;
  const T* derivative;
  template <int N>
  __device__ void at(std::int64_t i) const {
    gpu::store(dy + i, gpu::load<N>(dy + i) * gpu::load<N>(derivative + i));
  }
};

/// Multiplies dy by the derivative and sums it in one pass.
template <class T>
struct ScaledSum {
  T* dy;
  const T* derivative;
  std::int64_t n;
  __device__ real_t<T> read(std::int64_t row, std::int64_t column) const {
    return gpu::load(dy + row * n + column) * gpu::load(derivative + row * n + column);
  }
  __device__ void add(std::int64_t row, std::int64_t column, real_t<T> da, real_t<T> (&sum)[1]) const {
    gpu::store(dy + row * n + column, da);
    sum[0] += da;
  }
};

/// bias, residual and derivative may be null.
template <class T>
void forward(const Stream& stream, const LinearShape& s, T* y, T* derivative, const T* x, const T* weight,
             const T* bias, const T* residual, Activation activation, const Dropout& dropout, const SampleRows& rows) {
  const bool plain = activation == Activation::none && derivative == nullptr && !dropout;
  // The library adds a bias to the product, but not in f64, and a residual. A half is rounded once, with its bias,
  // before the activation.
  const bool at_once = bias == nullptr || sizeof(T) < sizeof(float) || (plain && sizeof(T) == sizeof(float));
  product<T>(stream, Product::nt, s.m, s.n, s.k, y, x, weight, false, at_once ? bias : nullptr, {},
             at_once && plain ? residual : nullptr);
  if (at_once && plain) return;
  if (at_once) bias = nullptr;
  // If rows are whole packs, a pack lies within one row.
  gpu::visit_activation(activation, [&]<class Op>() {
    const Activate<T, Op> activate{y, derivative, bias, residual, s.n};
    if (dropout)
      gpu::drawn_map<real_t<T>>(stream, s.m * s.n / rows.rows(), s.n, dropout, rows, activate, y, derivative, bias,
                                residual);
    else
      gpu::map<T>(stream, s.m * s.n, s.n % gpu::pack_size<T>() == 0 && gpu::aligned(y, derivative, bias, residual),
                  activate);
  });
}

/// dy *= derivative (unless null); sums_n (+)= column sums (unless null).
template <class T>
void scale_and_sum(const Stream& stream, std::int64_t m, std::int64_t n, T* dy, const T* derivative, real_t<T>* sums,
                   bool accumulate) {
  const gpu::ColumnSums<real_t<T>, 1> to{{sums}, {accumulate}};
  if (sums != nullptr && derivative != nullptr)
    gpu::column_sums(stream, m, n, to, ScaledSum<T>{dy, derivative, n});
  else if (sums != nullptr)
    gpu::column_sums(stream, m, n, to, gpu::Plain<T>{dy, n});
  else if (derivative != nullptr)
    gpu::map<T>(stream, m * n, gpu::aligned(dy, derivative), Scaled<T>{dy, derivative});
}

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
    if (at_k == 0) to[p.n * p.k + row] = db[i];
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

/// Where a gradient goes, or null.
template <class T>
struct Gradient {
  real_t<T>* to;
  bool accumulate;
};
/// dy *= derivative (unless null); then dw (N, K) (+)= dy' x and db (N) (+)= column sums of dy.
template <class T>
void gradients(const Stream& stream, const LinearShape& s, T* dy, const T* derivative, const T* x,
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

}  // namespace
}  // namespace cuda

void linear_forward(Stream& stream, const Tensor& y, const Tensor& derivative, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, Activation activation, const Dropout& dropout, const SampleRows& rows,
                    const Tensor& residual) {
  const LinearShape s = shape_of("linear", x, weight);
  check_output("linear", "y", y, s);
  check_output("linear", "derivative", derivative, s);
  check_output("linear", "residual", residual, s);
  require(!bias || bias.shape() == Shape{s.n}, "linear: weight is ", weight.shape(), ", so bias must be (", s.n,
          "), not ", bias.shape());
  require(!dropout || (dropout.rate > 0 && dropout.rate < 1 && y.shape()[0] == rows.rows()), "linear: dropout of ",
          dropout.rate, " in ", rows.rows(), " rows, but y is ", y.shape());
  on_gpu(x, [&]<class T>() {
    cuda::forward<T>(stream, s, y, derivative, x, weight, bias, residual, activation, dropout, rows);
  });
  on_cpu(x, [&]<class T>() {
    cpu::Epilogue<T> epilogue;
    if (bias) epilogue.bias = bias.data<T>();
    if (derivative) epilogue.derivative = derivative.data<T>();
    epilogue.activate = cpu::active_activation_kernel<T>(activation);
    if (residual && !dropout) epilogue.residual = residual.data<T>();
    if (derivative && !epilogue.activate) std::fill_n(derivative.data<T>(), derivative.size(), T{1});
    cpu::product<T>(s.m, s.n, s.k, y, x, weight, true, false, epilogue, cpu::Operand::weight);
    if (dropout) ops::dropout_both(stream, y, derivative, residual, dropout, rows);
  });
}

void linear_backward(Stream& stream, Target dx, Target dweight, Target dbias, const Tensor& dy,
                     const Tensor& derivative, const Tensor& x, const Tensor& weight) {
  const LinearShape s = shape_of("linear backward", x, weight);
  check_output("linear backward", "dy", dy, s);
  check_output("linear backward", "derivative", derivative, s);
  require(!dx || dx.tensor.shape() == x.shape(), "linear backward: x is ", x.shape(), ", so dx must be too, not ",
          dx.tensor.shape());
  require(!dweight || dweight.tensor.shape() == weight.shape(), "linear backward: weight is ", weight.shape(),
          ", so dweight must be too, not ", dweight.tensor.shape());
  require(!dbias || dbias.tensor.shape() == Shape{s.n}, "linear backward: weight is ", weight.shape(),
          ", so dbias must be (", s.n, "), not ", dbias.tensor.shape());
  on_gpu(x, [&]<class T>() {
    const auto gradient = [](const Target& to) {
      return cuda::Gradient<T>{to ? to.tensor.data<real_t<T>>() : nullptr, to.accumulate};
    };
    cuda::gradients<T>(stream, s, dy.data<T>(), derivative, x, gradient(dweight), gradient(dbias));
    if (dx) cuda::product<T, T>(stream, cuda::Product::nn, s.m, s.k, s.n, dx.tensor, dy, weight, dx.accumulate);
  });
  on_cpu(x, [&]<class T>() {
    T* da = dy.data<T>();
    cpu::scale_and_sum<T>(s.m, s.n, da, derivative, dbias.tensor, dbias.accumulate);
    if (dx) cpu::product<T>(s.m, s.k, s.n, dx.tensor, da, weight, false, dx.accumulate, {}, cpu::Operand::weight);
    if (dweight) cpu::product_tn<T>(s.n, s.k, s.m, dweight.tensor, da, x, dweight.accumulate);
  });
}

}  // namespace lockstep::ops
