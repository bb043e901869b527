#include "dropout_kernels.hpp"
#include "ops/common/drawn_map_cuda.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Reads x and, unless it is null, `to`; writes y.
template <class T>
struct AddDropped {
  T* y;
  const T *to, *x;
  using R = real_t<T>;
  template <int N>
  __device__ void at(std::int64_t i, const gpu::Keep<R>& keep) const {
    const gpu::Pack<R, N> in = gpu::load<N>(x + i);  // the compiler splits a load of four f64 in two
    gpu::Pack<R, N> out{};
    if (to != nullptr) out = gpu::load<N>(to + i);
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = to != nullptr ? out.at[k] + keep(k, in.at[k]) : keep(k, in.at[k]);
    gpu::store(y + i, out);
  }
  __device__ void behind(std::int64_t i) const { gpu::store(y + i, to != nullptr ? gpu::load(to + i) : R{0}); }
};

}  // namespace

template <class T>
void dropout(const Stream& stream, std::int64_t width, T* y, const T* to, const T* x, const Dropout& dropout,
             const SampleRows& rows) {
  const bool packed = gpu::aligned_for<4>(y, to, x) && width % 4 == 0;
  gpu::drawn_map<real_t<T>>(stream, width, packed, dropout, rows, AddDropped<T>{y, to, x});
}

LOCKSTEP_EACH_STORAGE(dropout)

}  // namespace lockstep::ops::cuda
