#include "lockstep/ops/cast.hpp"

#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

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

void cast(Stream& stream, const Tensor& y, const Tensor& x) {
  const DType to = y.dtype(), from = x.dtype();
  require(y.size() == x.size(), "cast: x is ", x.shape(), ", so y must have as many elements, not ", y.shape());
  if (to == from && !is_half(to)) return copy(stream, y, x);
  require(is_half(to) || is_half(from), "cast: cannot convert ", from, " to ", to, ": one of them must be bf16 or f16");
  require(to != DType::f64, "cast: cannot convert ", from, " to f64: f64 is a source type only");
  const bool ran = on_gpu(x, [&]<class From>() {
    const auto convert = [&]<class To>() {
      if constexpr (sizeof(To) <= sizeof(float))
        gpu::map<kPack>(stream, x.size(), gpu::packable(kPack, {y, x}), Cast<To, From>{y, x});
    };
    visit_storage(to, if_built(convert));
  });
  require(ran, "cast: cannot convert ", from, " to ", to, " on the CPU, which has only f32 and f64");
}

}  // namespace lockstep::ops
