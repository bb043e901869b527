#include "lockstep/ops/rope.hpp"

#include <cmath>

#include "ops/common/on_gpu.hpp"
#include "rope_kernels.hpp"

namespace lockstep::ops {

void rope_table(const Tensor& cos, const Tensor& sin, double theta) {
  require(cos.shape().rank() == 2 && cos.shape() == sin.shape(), "rope_table: cos is ", cos.shape(), ", sin ",
          sin.shape(), "; both must be (T, d/2)");
  const HostView to_cos(cos, HostView::Access::write), to_sin(sin, HostView::Access::write);
  visit_float(cos.dtype(), [&]<class T>() {
    const std::int64_t half = cos.shape()[1];
    for (std::int64_t t = 0; t < cos.shape()[0]; ++t)
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle =
            static_cast<double>(t) * std::pow(theta, -static_cast<double>(j) / static_cast<double>(half));
        to_cos->data<T>()[t * half + j] = static_cast<T>(std::cos(angle));
        to_sin->data<T>()[t * half + j] = static_cast<T>(std::sin(angle));
      }
  });
}

void rope(Stream& stream, const Tensor& qkv, const Tensor& cos, const Tensor& sin, std::int64_t heads,
          Rotation rotation) {
  require(qkv.shape().rank() == 3 && cos.shape().rank() == 2 && cos.shape() == sin.shape() &&
              qkv.shape()[1] == cos.shape()[0] && heads * 2 * cos.shape()[1] <= qkv.columns(),
          "rope: qkv is ", qkv.shape(), ", the table ", cos.shape(), " and ", sin.shape(), ", heads ", heads,
          "; these do not fit together");
  const std::int64_t positions = cos.shape()[0], half = cos.shape()[1];
  const int sign = rotation == Rotation::forward ? 1 : -1;
  on_gpu(qkv, [&]<class T>() {
    using R = real_t<T>;
    cuda::rope<T>(stream, qkv.rows(), qkv.columns(), heads, half, positions, qkv, cos, sin, static_cast<R>(sign));
  });
  on_cpu(qkv, [&]<class T>() {
    cpu::active_rope_kernel<T>()(qkv.rows(), qkv.columns(), heads, half, positions, qkv, cos, sin,
                                 static_cast<T>(sign));
  });
}

}  // namespace lockstep::ops
