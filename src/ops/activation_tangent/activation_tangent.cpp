#include "lockstep/ops/activation_tangent.hpp"

#include <algorithm>

#include "activation_tangent_kernels.hpp"
#include "ops/activation/activation_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

void activation_slopes(Stream& stream, const Tensor& first, const Tensor& second, const Tensor& x,
                       Activation activation) {
  require(first.shape() == x.shape() && second.shape() == x.shape(), "activation slopes: x is ", x.shape(), ", first ",
          first.shape(), ", second ", second.shape(), "; all must be equal");
  on_gpu(x, [&]<class T>() { cuda::activation_slopes<T>(stream, x.size(), first, second, x, activation); });
  on_cpu(x, [&]<class T>() {
    if (const auto kernel = cpu::active_slopes_kernel<T>(activation)) return kernel(x.size(), first, second, x);
    std::ranges::fill(first.span<T>(), T{1});
    std::ranges::fill(second.span<T>(), T{0});
  });
}

namespace {
std::int64_t directions_of(const Tensor& s, const Tensor& other, const Tensor& slope) {
  const std::int64_t n = slope.size();
  require(s.shape() == other.shape() && (n == 0 ? s.size() == 0 : s.size() % n == 0), "activation tangent: s is ",
          s.shape(), ", its result ", other.shape(), ", the derivative ", slope.shape(),
          "; the first two must be equal and a multiple of the third");
  return n == 0 ? 0 : s.size() / n;
}
}  // namespace

void activation_tangent(Stream& stream, Target t, const Tensor& s, const Tensor& first) {
  if (!t) return;
  const std::int64_t directions = directions_of(s, t.tensor, first), n = first.size();
  on_gpu(s, [&]<class T>() { cuda::activation_tangent<T>(stream, n, directions, t.tensor, s, first, t.accumulate); });
  on_cpu(s, [&]<class T>() {
    const auto multiply = cpu::active_multiply_kernel<T>();
    for (std::int64_t k = 0; k < directions; ++k)
      multiply(n, t.tensor.data<T>() + k * n, s.data<T>() + k * n, first.data<T>(), t.accumulate);
  });
}

void activation_tangent_backward(Stream& stream, Target da, const Tensor& dt, const Tensor& s, const Tensor& second) {
  if (!da) return;
  const std::int64_t directions = directions_of(s, dt, second), n = second.size();
  require(da.tensor.shape() == second.shape(), "activation tangent backward: second is ", second.shape(),
          ", so da must be too, not ", da.tensor.shape());
  on_gpu(s,
         [&]<class T>() { cuda::tangent_backward<T>(stream, n, directions, da.tensor, dt, s, second, da.accumulate); });
  on_cpu(s, [&]<class T>() {
    cpu::active_tangent_backward_kernel<T>()(n, directions, da.tensor, dt, s, second, da.accumulate);
  });
}

}  // namespace lockstep::ops
