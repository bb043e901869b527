#include "lockstep/ops/dropout.hpp"

#include "dropout_kernels.hpp"

#ifdef LOCKSTEP_ISA
#include "dropout_rows.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {
template <class T>
void drop(std::int64_t n, T* y, const T* to, const T* x, T* also, const PhiloxKey& key, const DropRate& rate) {
  dropout_row(n, y, to, x, key, 0, rate, also);
}
}  // namespace

LOCKSTEP_KERNEL_TABLE(DropoutKernel, dropout_kernel, drop<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>

#include "lockstep/ops/elementwise.hpp"
#include "ops/common/drawn_map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// Reads x and, unless it is null, `to`; writes y.
template <class T>
struct AddDropped {
  T* y;
  const T *to, *x;
  using R = real_t<T>;
  template <int N>
  struct Values {
    gpu::Pack<R, N> in, out;
  };
  template <int N>
  __device__ Values<N> read(std::int64_t i) const {  // the compiler splits a load of four f64 in two
    return {gpu::load<N>(x + i), to != nullptr ? gpu::load<N>(to + i) : gpu::Pack<R, N>{}};
  }
  template <int N>
  __device__ void write(std::int64_t i, Values<N> v, const gpu::Keep<R>& keep) const {
#pragma unroll
    for (int k = 0; k < N; ++k) v.out.at[k] = to != nullptr ? v.out.at[k] + keep(k, v.in.at[k]) : keep(k, v.in.at[k]);
    gpu::store(y + i, v.out);
  }
  __device__ void behind(std::int64_t i) const { gpu::store(y + i, to != nullptr ? gpu::load(to + i) : R{0}); }
};

void check(const Tensor& y, const Tensor& x, const Dropout& dropout, const SampleRows& rows) {
  require(y.shape() == x.shape(), "dropout: x is ", x.shape(), ", so y must be too, not ", y.shape());
  require(dropout.rate >= 0 && dropout.rate < 1, "dropout: rate ", dropout.rate, ": must be in [0, 1)");
  require(x.shape().rank() > 0 && x.shape()[0] == rows.rows(), "dropout: x is ", x.shape(), ", but its ", rows.count(),
          " samples have ", rows.rows(), " rows");
}

/// y = x with dropout, plus `to` unless that is empty. Drops the same elements of `also` unless that is empty (CPU
/// only).
void drop(Stream& stream, const Tensor& y, const Tensor& to, const Tensor& x, const Tensor& also,
          const Dropout& dropout, const SampleRows& rows) {
  require(!also || !y.device().is_cuda(), "dropout_both: a derivative is only dropped on a CPU");
  const cpu::DropRate rate(dropout.rate);
  const std::int64_t width = x.size() / std::max<std::int64_t>(1, x.shape()[0]);
  on_gpu(x, [&]<class T>() {
    gpu::drawn_map<real_t<T>>(stream, width, width, dropout, rows, AddDropped<T>{y, to, x}, y.data<T>(), to.data<T>(),
                              x.data<T>());
  });
  on_cpu(x, [&]<class T>() {
    const auto kernel = cpu::active_dropout_kernel<T>();
    const T* const added = to.data<T>();
    for (std::size_t b = 0; b < rows.samples.size(); ++b) {
      const std::int64_t first = rows.offsets[b] * width;
      kernel(rows.offsets[b + 1] * width - first, y.data<T>() + first, added ? added + first : nullptr,
             x.data<T>() + first, also ? also.data<T>() + first : nullptr,
             cpu::PhiloxKey(dropout.draws(rows.samples[b])), rate);
    }
    T* const behind = y.data<T>() + rows.used() * width;
    if (added == nullptr) std::fill(behind, y.data<T>() + y.size(), T{0});
    if (also) std::fill(also.data<T>() + rows.used() * width, also.data<T>() + y.size(), T{0});
    if (added != nullptr && added != y.data<T>()) std::copy(added + rows.used() * width, added + y.size(), behind);
  });
}

}  // namespace

void dropout(Stream& stream, Target y, const Tensor& x, const Dropout& dropout, const SampleRows& rows) {
  if (!y) return;
  check(y.tensor, x, dropout, rows);
  if (!dropout) return scale(stream, y, x, 1);
  drop(stream, y.tensor, y.accumulate ? y.tensor : Tensor(), x, {}, dropout, rows);
}

void dropout_both(Stream& stream, const Tensor& y, const Tensor& derivative, const Tensor& base, const Dropout& dropout,
                  const SampleRows& rows) {
  check(y, y, dropout, rows);
  for (const Tensor* t : {&derivative, &base})
    require(!*t || t->shape() == y.shape(), "dropout_both: y is ", y.shape(),
            ", so derivative and base must be too, not ", t->shape());
  drop(stream, y, base, y, derivative, dropout, rows);
}

}  // namespace lockstep::ops

#endif
