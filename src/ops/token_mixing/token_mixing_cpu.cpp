#include "ops/common/simd.hpp"
#include "token_mixing_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Two passes over a vector of channels, whose positions stay in the first-level cache.
template <class T>
void normalise(std::int64_t positions, std::int64_t channels, std::int64_t stride, T* y, T* rstd, const T* x,
               const T* branch, T eps) {
  each_vector<T>(channels, [&](std::int64_t c, Lanes<T> lanes) {
    Vec<T> squares{};
    for (std::int64_t t = 0; t < positions; ++t) {
      const Vec<T> v = load(x + t * stride + c, lanes) + load(branch + t * channels + c, lanes);
      squares = fma(v, v, squares);
      store(y + t * stride + c, v, lanes);
    }
    const Vec<T> scale = splat(T{1}) / sqrt(squares / splat(static_cast<T>(positions)) + splat(eps));
    for (std::int64_t t = 0; t < positions; ++t) {
      T* at = y + t * stride + c;
      store(at, load(at, lanes) * scale, lanes);
    }
    if (rstd) store(rstd + c, scale, lanes);
  });
}

template <class T>
void slopes(std::int64_t positions, std::int64_t channels, std::int64_t stride, T* dv, const T* dy, const T* y,
            const T* rstd) {
  each_vector<T>(channels, [&](std::int64_t c, Lanes<T> lanes) {
    Vec<T> products{};
    for (std::int64_t t = 0; t < positions; ++t)
      products = fma(load(y + t * stride + c, lanes), load(dy + t * stride + c, lanes), products);
    const Vec<T> mean = products / splat(static_cast<T>(-positions)), scale = load(rstd + c, lanes);
    for (std::int64_t t = 0; t < positions; ++t) {
      const std::int64_t at = t * stride + c;
      store(dv + t * channels + c, scale * fma(load(y + at, lanes), mean, load(dy + at, lanes)), lanes);
    }
  });
}

template <class T>
void put_sum(std::int64_t positions, std::int64_t channels, std::int64_t stride, T* dx, bool add, const T* a,
             const T* b) {
  for (std::int64_t t = 0; t < positions; ++t, dx += stride, a += channels, b += channels)
    each_vector<T>(channels, [&](std::int64_t c, Lanes<T> lanes) {
      const Vec<T> sum = load(a + c, lanes) + load(b + c, lanes);
      store(dx + c, add ? load(dx + c, lanes) + sum : sum, lanes);
    });
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(TokenMixingKernels, token_mixing_kernels, normalise<T>, slopes<T>, put_sum<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
