#include "lockstep/ops/elementwise.hpp"

#include "elementwise_kernels.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep::ops {

namespace {
void check_scale(const Target& y, const Tensor& x) {
  require(y.tensor.shape() == x.shape(), "scale: x is ", x.shape(), ", so y must be too, not ", y.tensor.shape());
}

template <class T>
void scale_on_cpu(const Target& y, const Tensor& x, T factor) {
  const T* from = x.data<T>();
  T* to = y.tensor.data<T>();
  const std::int64_t n = x.size();
  if (y.accumulate)
    for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = factor * from[i];
}
}  // namespace

void scale(Stream& stream, Target y, const Tensor& x, double factor) {
  if (!y) return;
  check_scale(y, x);
  visit_float(x.dtype(), [&]<class T>() {
    if constexpr (kHasCuda) {
      if (x.device().is_cuda())
        return cuda::scale<T>(stream, x.size(), y.tensor.data<T>(), x.data<T>(), static_cast<T>(factor), nullptr,
                              y.accumulate);
    }
    scale_on_cpu(y, x, static_cast<T>(factor));
  });
}

void scale_by(Stream& stream, Target y, const Tensor& x, const Tensor& times, double factor) {
  if (!y) return;
  check_scale(y, x);
  require(times.size() == 1, "scale_by: times must be one number, not ", times.shape());
  visit_float(x.dtype(), [&]<class T>() {
    if constexpr (kHasCuda) {
      if (x.device().is_cuda())
        return cuda::scale<T>(stream, x.size(), y.tensor.data<T>(), x.data<T>(), static_cast<T>(factor),
                              times.data<T>(), y.accumulate);
    }
    scale_on_cpu(y, x, static_cast<T>(factor) * *times.data<T>());
  });
}

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && y.shape() == a.shape(), "add: a is ", a.shape(), ", b ", b.shape(), ", y ",
          y.shape(), "; they must be equal");
  visit_float(a.dtype(), [&]<class T>() {
    if constexpr (kHasCuda) {
      if (a.device().is_cuda()) return cuda::add<T>(stream, a.size(), y.data<T>(), a.data<T>(), b.data<T>());
    }
    const T *p = a.data<T>(), *q = b.data<T>();
    T* to = y.data<T>();
    for (std::int64_t i = 0; i < a.size(); ++i) to[i] = p[i] + q[i];
  });
}

}  // namespace lockstep::ops
