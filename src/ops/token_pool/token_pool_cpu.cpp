#include "ops/common/simd.hpp"
#include "token_pool_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void forward(std::int64_t time, std::int64_t width, T* z, const T* w, const T* x) {
  for (std::int64_t c = 0; c < width; c += kLanes<T>) {
    const Lanes<T> lanes = lanes_at<T>(c, width);
    Vec<T> sum{};
    for (std::int64_t t = 0; t < time; ++t) sum = fma(splat(w[t]), load(x + t * width + c, lanes), sum);
    store(z + c, sum, lanes);
  }
}

template <class T>
void backward(std::int64_t time, std::int64_t width, T* dx, bool add_dx, T* dscores, bool add_dscores, const T* dz,
              const T* z, const T* w, const T* x) {
  for (std::int64_t t = 0; t < time; ++t) {
    const T* xt = x + t * width;
    Vec<T> product{};
    for (std::int64_t c = 0; c < width; c += kLanes<T>) {
      const Lanes<T> lanes = lanes_at<T>(c, width);
      const Vec<T> g = load(dz + c, lanes);
      if (dscores) product = fma(g, load(xt + c, lanes) - load(z + c, lanes), product);
      if (!dx) continue;
      T* to = dx + t * width + c;
      const Vec<T> d = g * splat(w[t]);
      store(to, add_dx ? load(to, lanes) + d : d, lanes);
    }
    if (!dscores) continue;
    T sum = product[0];
    for (int i = 1; i < kLanes<T>; ++i) sum += product[i];
    dscores[t] = add_dscores ? dscores[t] + w[t] * sum : w[t] * sum;
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(TokenPoolKernels, token_pool_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
