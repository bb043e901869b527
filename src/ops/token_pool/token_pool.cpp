#include "lockstep/ops/token_pool.hpp"

#include <algorithm>
#include <cmath>

#include "ops/common/on_gpu.hpp"
#include "token_pool_kernels.hpp"

namespace lockstep::ops {

namespace {
struct Extents {
  std::int64_t sequences, time, width;
};
Extents extents_of(const Tensor& z, const Tensor& w, const Tensor& x) {
  require(x.shape().rank() == 3, "token pool: x must be (N, T, D), not ", x.shape());
  const Extents e{x.shape()[0], x.shape()[1], x.shape()[2]};
  require(z.size() == e.sequences * e.width && w.size() == e.sequences * e.time, "token pool: x is ", x.shape(),
          ", so z must be (", e.sequences, ", ", e.width, ") and w (", e.sequences, ", ", e.time, "), not ", z.shape(),
          " and ", w.shape());
  return e;
}
}  // namespace

void token_pool_forward(Stream& stream, const Tensor& z, const Tensor& w, const Tensor& x, const Tensor& scores) {
  const Extents e = extents_of(z, w, x);
  const bool scored = scores.shape().rank() > 0;
  require(!scored || scores.size() == w.size(), "token pool: w is ", w.shape(), ", so scores must be too, not ",
          scores.shape());
  on_gpu(x, [&]<class T>() { cuda::token_pool_forward<T>(stream, e.sequences, e.time, e.width, z, w, x, scores); });
  on_cpu(x, [&]<class T>() {
    const auto kernel = cpu::active_token_pool_kernels<T>().forward;
    for (std::int64_t n = 0; n < e.sequences; ++n) {
      T* weight = w.data<T>() + n * e.time;
      if (scored) {
        const T* s = scores.data<T>() + n * e.time;
        const T largest = *std::max_element(s, s + e.time);
        T sum = 0;
        for (std::int64_t t = 0; t < e.time; ++t) sum += weight[t] = std::exp(s[t] - largest);
        for (std::int64_t t = 0; t < e.time; ++t) weight[t] /= sum;
      } else {
        std::fill_n(weight, e.time, 1 / static_cast<T>(e.time));
      }
      kernel(e.time, e.width, z.data<T>() + n * e.width, weight, x.data<T>() + n * e.time * e.width);
    }
  });
}

void token_pool_backward(Stream& stream, Target dx, Target dscores, const Tensor& dz, const Tensor& z, const Tensor& w,
                         const Tensor& x) {
  const Extents e = extents_of(z, w, x);
  require(dz.shape() == z.shape() && (!dx || dx.tensor.shape() == x.shape()) &&
              (!dscores || dscores.tensor.size() == w.size()),
          "token pool backward: x is ", x.shape(), ", z ", z.shape(), "; dx is ", dx.tensor.shape(), ", dz ",
          dz.shape(), ", dscores ", dscores.tensor.shape());
  on_gpu(x, [&]<class T>() {
    cuda::token_pool_backward<T>(stream, e.sequences, e.time, e.width, dx.tensor, dx.accumulate, dscores.tensor,
                                 dscores.accumulate, dz, z, w, x);
  });
  on_cpu(x, [&]<class T>() {
    const auto kernel = cpu::active_token_pool_kernels<T>().backward;
    for (std::int64_t n = 0; n < e.sequences; ++n)
      kernel(e.time, e.width, dx ? dx.tensor.data<T>() + n * e.time * e.width : nullptr, dx.accumulate,
             dscores ? dscores.tensor.data<T>() + n * e.time : nullptr, dscores.accumulate, dz.data<T>() + n * e.width,
             z.data<T>() + n * e.width, w.data<T>() + n * e.time, x.data<T>() + n * e.time * e.width);
  });
}

}  // namespace lockstep::ops
