#include "linear_kernels.hpp"
#include "ops/activation/activation_kernels.hpp"
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
  __device__ void at(std::int64_t i) const {
    apply<N>(i, [](int, R x) { return x; });
  }
  template <int N>
  __device__ void at(std::int64_t i, const gpu::Keep<R>& keep) const {
    apply<N>(i, keep);
  }
  __device__ void behind(std::int64_t i) const {
    gpu::store(y + i, residual != nullptr ? gpu::load(residual + i) : R{0});
    if (derivative != nullptr) gpu::store(derivative + i, R{0});
  }

 private:
  template <int N, class Keep>
  __device__ void apply(std::int64_t i, const Keep& keep) const {
    gpu::Pack<real_t<T>, N> value = gpu::load<N>(y + i), slope, start{}, base{};
    if (bias != nullptr) start = gpu::load<N>(bias + gpu::remainder(i, n));
    if (residual != nullptr) base = gpu::load<N>(residual + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Op::apply(value.at[k] + start.at[k], value.at[k], slope.at[k]);
      value.at[k] = base.at[k] + keep(k, value.at[k]);
      slope.at[k] = keep(k, slope.at[k]);
    }
    gpu::store(y + i, value);
    if (derivative != nullptr) gpu::store(derivative + i, slope);
  }
};

/// Multiplies dy by the derivative and sums it in one pass.
template <class T>
struct ScaledSum {
  T* dy;
  const T* derivative;
  std::int64_t n;
  __device__ void add(std::int64_t row, std::int64_t column, real_t<T> (&sum)[1]) const {
    const std::int64_t i = row * n + column;
    const real_t<T> da = gpu::load(dy + i) * gpu::load(derivative + i);
    gpu::store(dy + i, da);
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
      gpu::drawn_map<real_t<T>>(stream, s.m * s.n / rows.rows(),
                                s.n % 4 == 0 && gpu::aligned_for<4>(y, derivative, bias, residual), dropout, rows,
                                activate);
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
    multiply<T>(stream, m * n, dy, dy, derivative, false);
}

LOCKSTEP_EACH_STORAGE(linear_forward, scale_and_sum)

}  // namespace lockstep::ops::cuda
