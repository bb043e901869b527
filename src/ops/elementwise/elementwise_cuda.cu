#include "elementwise_kernels.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

template <class T, class X, bool kAccumulate>
struct Scale {
  T* y;
  const X* x;
  real_t<T> factor;
  const real_t<T>* by;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<real_t<T>, N> from = gpu::load<N>(x + i);
    gpu::Pack<real_t<T>, N> to{};
    if (kAccumulate) to = gpu::load<N>(y + i);
    const real_t<T> f = by != nullptr ? factor * *by : factor;
#pragma unroll
    for (int k = 0; k < N; ++k) to.at[k] = kAccumulate ? to.at[k] + f * from.at[k] : f * from.at[k];
    gpu::store(y + i, to);
  }
};

template <class T>
struct Add {
  T* y;
  const T *a, *b, *c;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<real_t<T>, N> p = gpu::load<N>(a + i), q = gpu::load<N>(b + i);
    gpu::Pack<real_t<T>, N> sum, third{};
    if (c != nullptr) third = gpu::load<N>(c + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] = p.at[k] + q.at[k] + third.at[k];
    gpu::store(y + i, sum);
  }
};

}  // namespace

template <class T, class X>
void scale(const Stream& stream, std::int64_t n, T* y, const X* x, real_t<T> factor, const real_t<T>* by,
           bool accumulate) {
  constexpr int N = gpu::pack_size<T>();
  const bool packed = gpu::aligned_for<N>(y, x);
  if (accumulate)
    gpu::map<N>(stream, n, packed, Scale<T, X, true>{y, x, factor, by});
  else
    gpu::map<N>(stream, n, packed, Scale<T, X, false>{y, x, factor, by});
}

template <class T>
void add(const Stream& stream, std::int64_t n, T* y, const T* a, const T* b, const T* c) {
  gpu::map<T>(stream, n, gpu::aligned(y, a, b, c), Add<T>{y, a, b, c});
}

#define INSTANTIATE(T, X) \
  template void scale<T, X>(const Stream&, std::int64_t, T*, const X*, real_t<T>, const real_t<T>*, bool);
INSTANTIATE(float, float)
INSTANTIATE(double, double)
INSTANTIATE(bf16, bf16)
INSTANTIATE(bf16, float)
INSTANTIATE(f16, f16)
INSTANTIATE(f16, float)
#undef INSTANTIATE
LOCKSTEP_EACH_STORAGE(add)

}  // namespace lockstep::ops::cuda
