#include "cast_kernels.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Packs of eight: 16 bytes of halves, two loads of f32. Memory bound.
constexpr int kPack = 8;

template <class To, class From>
struct Cast {
  To* y;
  const From* x;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const gpu::Pack<real_t<From>, N> from = gpu::load<N>(x + i);
    gpu::Pack<float, N> value;
#pragma unroll
    for (int k = 0; k < N; ++k) value.at[k] = static_cast<float>(from.at[k]);
    gpu::store(y + i, value);
  }
};

}  // namespace

template <class To, class From>
void cast(const Stream& stream, std::int64_t n, To* y, const From* x) {
  gpu::map<kPack>(stream, n, gpu::aligned_for<kPack>(y, x), Cast<To, From>{y, x});
}

#define INSTANTIATE(To, From) template void cast(const Stream&, std::int64_t, To*, const From*);
INSTANTIATE(float, float)
INSTANTIATE(float, bf16)
INSTANTIATE(float, f16)
INSTANTIATE(bf16, float)
INSTANTIATE(bf16, bf16)
INSTANTIATE(bf16, f16)
INSTANTIATE(f16, float)
INSTANTIATE(f16, bf16)
INSTANTIATE(f16, f16)
INSTANTIATE(float, double)
INSTANTIATE(bf16, double)
INSTANTIATE(f16, double)
#undef INSTANTIATE

}  // namespace lockstep::ops::cuda
