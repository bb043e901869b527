#include "linear_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/drawn_map_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops::cuda {
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

}  // namespace

template <class T>
void linear_forward(const Stream& stream, const LinearShape& s, T* y, T* derivative, const T* x, const T* weight,
                    const T* bias, const T* residual, Activation activation, const Dropout& dropout,
                    const SampleRows& rows) {
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

LOCKSTEP_EACH_STORAGE(linear_forward, scale_and_sum)

}  // namespace lockstep::ops::cuda
