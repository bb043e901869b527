#include "layernorm_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// 1 in the lanes that exist, 0 in the others.
template <class T>
LOCKSTEP_INLINE Vec<T> ones(Lanes<T> lanes) {
  alignas(64) static constexpr T kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  return load(kOnes, lanes);
}

template <class T>
void forward(std::int64_t n, std::int64_t c, T* y, T* mean, T* rstd, const T* x, const T* gamma, const T* beta, T eps) {
  for (std::int64_t i = 0; i < n; ++i, x += c, y += c) {
    Vec<T> sum{}, squares{};
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) { sum += load(x + at, lanes); });
    const T m = total<T>(sum) / static_cast<T>(c);
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> d = (load(x + at, lanes) - splat(m)) * ones<T>(lanes);
      squares = fma(d, d, squares);
    });
    const T s = T{1} / root(total<T>(squares) / static_cast<T>(c) + eps);
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> h = (load(x + at, lanes) - splat(m)) * splat(s);
      store(y + at, fma(h, load(gamma + at, lanes), load(beta + at, lanes)), lanes);
    });
    if (mean) {
      mean[i] = m;
      rstd[i] = s;
    }
  }
}

template <class T>
void backward(std::int64_t n, std::int64_t c, T* dx, bool accumulate, T* sums, const T* dy, const T* x, const T* mean,
              const T* rstd, const T* gamma) {
  for (std::int64_t i = 0; i < n; ++i, x += c, dy += c) {
    const Vec<T> m = splat(mean[i]), s = splat(rstd[i]);
    Vec<T> sum_a{}, sum_ah{};
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> h = (load(x + at, lanes) - m) * s, d = load(dy + at, lanes), a = d * load(gamma + at, lanes);
      sum_a += a;
      sum_ah = fma(a, h, sum_ah);
      if (sums) {
        store(sums + at, fma(d, h, load(sums + at, lanes)), lanes);
        store(sums + c + at, load(sums + c + at, lanes) + d, lanes);
      }
    });
    if (!dx) continue;
    const Vec<T> mean_a = splat(total<T>(sum_a) / static_cast<T>(c)),
                 mean_ah = splat(total<T>(sum_ah) / static_cast<T>(c));
    each_vector<T>(c, [&](std::int64_t at, Lanes<T> lanes) {
      const Vec<T> h = (load(x + at, lanes) - m) * s, a = load(dy + at, lanes) * load(gamma + at, lanes);
      const Vec<T> d = s * (a - mean_a - h * mean_ah);
      store(dx + at, accumulate ? load(dx + at, lanes) + d : d, lanes);
    });
    dx += c;
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(LayerNormKernels, layernorm_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
