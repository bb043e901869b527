#include "lockstep/ops/rope.hpp"

#include <cmath>

#include "ops/common/map.hpp"

namespace lockstep::ops {

/// Rotates the heads in the first columns of each row of `width` elements: element j of a head's first half and element
/// j of its second half. Row m has position m % positions. sign -1 rotates back.
template <class T>
struct Rotate {
  std::int64_t width, heads, half, positions;
  T* x;
  const real_t<T>*cos, *sin;
  real_t<T> sign;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const std::int64_t angles = at.row % positions * half;
    const auto c = at.get(cos + angles), s = sign * at.get(sin + angles);
    for (std::int64_t h = 0; h < heads; ++h) {
      T *first = x + at.row * width + 2 * h * half, *second = first + half;
      const auto a = at.get(first), b = at.get(second);
      at.put(first, at.fma(a, c, real_t<T>{-1} * (b * s)));
      at.put(second, at.fma(b, c, a * s));
    }
  }
};

LOCKSTEP_MAPS(Rotate)

#ifndef LOCKSTEP_ISA

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
  map_rows(stream, {qkv.rows(), half, half | qkv.columns()}, {qkv, cos, sin}, [&]<class T>() {
    return Rotate<T>{qkv.columns(), heads, half, positions, qkv, cos, sin, static_cast<real_t<T>>(sign)};
  });
}

#endif

}  // namespace lockstep::ops
