#include "lockstep/ops/cast.hpp"

#include "cast_kernels.hpp"
#include "on_gpu.hpp"

namespace lockstep::ops {

void cast(Stream& stream, const Tensor& y, const Tensor& x) {
  const DType to = y.dtype(), from = x.dtype();
  require(y.size() == x.size(), "cast: x is ", x.shape(), ", y ", y.shape());
  if (to == from && !is_half(to)) return copy(stream, y, x);
  require(is_half(to) || is_half(from), "cast: from ", from, " to ", to, ": one of them must be a half");
  require(to != DType::f64, "cast: from ", from, " to f64");
  if (on_gpu(x, [&]<class From>() {
        visit_storage(to, [&]<class To>() {
          if constexpr (sizeof(To) <= sizeof(float)) cuda::cast(stream, x.size(), y.data<To>(), x.data<From>());
        });
      }))
    return;
  throw Error(Fault::internal, join("cast: from ", from, " to ", to, " on the CPU, which computes in f32 or f64"));
}

}  // namespace lockstep::ops
