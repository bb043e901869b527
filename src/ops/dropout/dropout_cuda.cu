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

}  // namespace

template <class T>
void dropout(const Stream& stream, std::int64_t width, T* y, const T* to, const T* x, const Dropout& dropout,
             const SampleRows& rows) {
  gpu::drawn_map<real_t<T>>(stream, width, width, dropout, rows, AddDropped<T>{y, to, x}, y, to, x);
}

LOCKSTEP_EACH_STORAGE(dropout)

}  // namespace lockstep::ops::cuda
