#include "lockstep/ops/elementwise.hpp"

#include "ops/common/map.hpp"

namespace lockstep::ops {

namespace elementwise {

/// y_i (+)= factor x_i, the product rounded; factor times *by unless that is null.
template <class T, class X = T>
struct Scale {
  T* y;
  const X* x;
  real_t<T> factor;
  const real_t<T>* by;
  bool accumulate;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(y, (by != nullptr ? factor * *by : factor) * at.get(x), accumulate);
  }
};

/// y_i = (a_i + b_i) + c_i; c may be null.
template <class T>
struct Add {
  T* y;
  const T *a, *b, *c;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const auto sum = at.get(a) + at.get(b);
    at.put(y, c != nullptr ? sum + at.get(c) : sum);
  }
};

}  // namespace elementwise

LOCKSTEP_MAPS(elementwise::Scale, elementwise::Add)

#ifndef LOCKSTEP_ISA

void scale(Stream& stream, Target y, const Tensor& x, double factor) {
  if (!y) return;
  require(y.tensor.shape() == x.shape(), "scale: x is ", x.shape(), ", so y must be too, not ", y.tensor.shape());
  map(stream, {y.tensor, x}, [&]<class T>() {
    return elementwise::Scale<T>{y.tensor, x, static_cast<real_t<T>>(factor), nullptr, y.accumulate};
  });
}

void scale_by(Stream& stream, Target y, const Tensor& x, const Tensor& times, double factor) {
  if (!y) return;
  require(y.tensor.shape() == x.shape(), "scale_by: x is ", x.shape(), ", so y must be too, not ", y.tensor.shape());
  require(times.size() == 1, "scale_by: times must be one number, not ", times.shape());
  map(stream, {y.tensor, x}, [&]<class T>() {
    using R = real_t<T>;
    return elementwise::Scale<T, R>{y.tensor, x, static_cast<R>(factor), times, y.accumulate};
  });
}

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& c) {
  require(a.shape() == b.shape() && y.shape() == a.shape() && (!c || c.shape() == a.shape()), "add: a is ", a.shape(),
          ", b ", b.shape(), ", c ", c.shape(), ", y ", y.shape(), "; they must be equal");
  map(stream, {y, a, b, c}, [&]<class T>() { return elementwise::Add<T>{y, a, b, c}; });
}

#endif

}  // namespace lockstep::ops
