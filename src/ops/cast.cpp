#include "lockstep/ops/cast.hpp"

#include "cast_kernels.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "on_gpu.hpp"

namespace lockstep::ops {

void cast(Stream& stream, Target y, const Tensor& x) {
  if (!y) return;
  const DType to = y.tensor.dtype(), from = x.dtype();
  require(y.tensor.size() == x.size(), "cast: x is ", x.shape(), ", y ", y.tensor.shape());
  if (to == from && !is_half(to)) {
    if (y.accumulate) return scale(stream, {y.tensor.reshaped(x.shape()), true}, x, 1);
    return copy(stream, y.tensor, x);
  }
  require(is_half(to) || is_half(from), "cast: from ", from, " to ", to, ": one of them must be a half");
  require(to != DType::f64, "cast: from ", from, " to f64");
  if (on_gpu(x, [&]<class From>() {
        visit_storage(to, [&]<class To>() {
          if constexpr (sizeof(To) <= sizeof(float))
            cuda::cast(stream, x.size(), y.tensor.data<To>(), x.data<From>(), y.accumulate);
        });
      }))
    return;
  throw Error(Fault::internal, join("cast: from ", from, " to ", to, " on the CPU, which computes in f32 or f64"));
}

}  // namespace lockstep::ops
