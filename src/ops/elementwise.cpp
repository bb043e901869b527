#include "lockstep/ops/elementwise.hpp"

namespace lockstep::ops {

void scale(Stream&, Target y, const Tensor& x, double factor) {
  if (!y) return;
  require(y.tensor.shape() == x.shape(), "scale: x is ", x.shape(), ", so y must be too, not ", y.tensor.shape());
  visit_float(x.dtype(), [&]<class T>() {
    const T f = static_cast<T>(factor);
    const T* from = x.data<T>();
    T* to = y.tensor.data<T>();
    const std::int64_t n = x.size();
    if (y.accumulate)
      for (std::int64_t i = 0; i < n; ++i) to[i] += f * from[i];
    else
      for (std::int64_t i = 0; i < n; ++i) to[i] = f * from[i];
  });
}

void add(Stream&, const Tensor& y, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && y.shape() == a.shape(), "add: a is ", a.shape(), ", b ", b.shape(), ", y ",
          y.shape(), "; they must be equal");
  visit_float(a.dtype(), [&]<class T>() {
    const T *p = a.data<T>(), *q = b.data<T>();
    T* to = y.data<T>();
    for (std::int64_t i = 0; i < a.size(); ++i) to[i] = p[i] + q[i];
  });
}

}  // namespace lockstep::ops
