#include "lockstep/ops/cast.hpp"

#include "cast_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

void cast(Stream& stream, const Tensor& y, const Tensor& x) {
  const DType to = y.dtype(), from = x.dtype();
  require(y.size() == x.size(), "cast: x is ", x.shape(), ", so y must have as many elements, not ", y.shape());
  if (to == from && !is_half(to)) return copy(stream, y, x);
  require(is_half(to) || is_half(from), "cast: cannot convert ", from, " to ", to, ": one of them must be bf16 or f16");
  require(to != DType::f64, "cast: cannot convert ", from, " to f64: f64 is a source type only");
  const bool ran = on_gpu(x, [&]<class From>() {
    visit_storage(to, [&]<class To>() {
      if constexpr (sizeof(To) <= sizeof(float)) cuda::cast(stream, x.size(), y.data<To>(), x.data<From>());
    });
  });
  require(ran, "cast: cannot convert ", from, " to ", to, " on the CPU, which has only f32 and f64");
}

}  // namespace lockstep::ops
