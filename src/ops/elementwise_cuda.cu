#include "cuda_map.hpp"
#include "elementwise_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

template <class T, bool kAccumulate>
struct Scale {
  T* y;
  const T* x;
  T factor;
  const T* by;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<T, N> from = gpu::load<N>(x + i);
    gpu::Pack<T, N> to{};
    if (kAccumulate) to = gpu::load<N>(y + i);
    const T f = by != nullptr ? factor * *by : factor;
#pragma unroll
    for (int k = 0; k < N; ++k) to.at[k] = kAccumulate ? to.at[k] + f * from.at[k] : f * from.at[k];
    gpu::store(y + i, to);
  }
};

template <class T>
struct Add {
  T* y;
  const T *a, *b;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<T, N> p = gpu::load<N>(a + i), q = gpu::load<N>(b + i);
    gpu::Pack<T, N> sum;
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] = p.at[k] + q.at[k];
    gpu::store(y + i, sum);
  }
};

}  // namespace

template <class T>
void scale(const Stream& stream, std::int64_t n, T* y, const T* x, T factor, const T* by, bool accumulate) {
  const bool packed = gpu::aligned(y, x);
  if (accumulate)
    gpu::map<T>(stream, n, packed, Scale<T, true>{y, x, factor, by});
  else
    gpu::map<T>(stream, n, packed, Scale<T, false>{y, x, factor, by});
}

template <class T>
void add(const Stream& stream, std::int64_t n, T* y, const T* a, const T* b) {
  gpu::map<T>(stream, n, gpu::aligned(y, a, b), Add<T>{y, a, b});
}

template void scale(const Stream&, std::int64_t, float*, const float*, float, const float*, bool);
template void scale(const Stream&, std::int64_t, double*, const double*, double, const double*, bool);
template void add(const Stream&, std::int64_t, float*, const float*, const float*);
template void add(const Stream&, std::int64_t, double*, const double*, const double*);

}  // namespace lockstep::ops::cuda
