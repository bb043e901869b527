#include "lockstep/ops/elementwise.hpp"

#include "elementwise_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {
void check_scale(const Target& y, const Tensor& x) {
  require(y.tensor.shape() == x.shape(), "scale: x is ", x.shape(), ", so y must be too, not ", y.tensor.shape());
}

template <class T>
void scale_on_cpu(const Target& y, const Tensor& x, T factor) {
  cpu::active_elementwise_kernels<T>().scale(x.size(), y.tensor, x, factor, y.accumulate);
}
}  // namespace

void scale(Stream& stream, Target y, const Tensor& x, double factor) {
  if (!y) return;
  check_scale(y, x);
  on_gpu(x, [&]<class T>() {
    cuda::scale<T, T>(stream, x.size(), y.tensor, x, static_cast<real_t<T>>(factor), nullptr, y.accumulate);
  });
  on_cpu(x, [&]<class T>() { scale_on_cpu(y, x, static_cast<T>(factor)); });
}

void scale_by(Stream& stream, Target y, const Tensor& x, const Tensor& times, double factor) {
  if (!y) return;
  check_scale(y, x);
  require(times.size() == 1, "scale_by: times must be one number, not ", times.shape());
  on_gpu(y.tensor, [&]<class T>() {
    using R = real_t<T>;
    cuda::scale<T, R>(stream, x.size(), y.tensor, x, static_cast<R>(factor), times, y.accumulate);
  });
  on_cpu(x, [&]<class T>() { scale_on_cpu(y, x, static_cast<T>(factor) * *times.data<T>()); });
}

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& c) {
  require(a.shape() == b.shape() && y.shape() == a.shape() && (!c || c.shape() == a.shape()), "add: a is ", a.shape(),
          ", b ", b.shape(), ", c ", c.shape(), ", y ", y.shape(), "; they must be equal");
  on_gpu(a, [&]<class T>() { cuda::add<T>(stream, a.size(), y, a, b, c); });
  on_cpu(a, [&]<class T>() { cpu::active_elementwise_kernels<T>().add(a.size(), y, a, b, c); });
}

}  // namespace lockstep::ops
