#include "transr_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Partial sums, added in one order for every vector width.
constexpr std::int64_t kPartials = 8;

double sum_of(const double (&partial)[kPartials]) {
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

template <class T>
void distances(std::int64_t n, std::int64_t k, double* f, double* g, double* squares, const T* projected, const T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T *h = projected + i * k, *t = h + n * k, *o = t + n * k;
    double near[kPartials] = {}, far[kPartials] = {}, square[kPartials] = {};
    const auto add = [&](std::int64_t c, std::int64_t partial) {
      const double a = static_cast<double>(h[c]), b = static_cast<double>(t[c]), d = static_cast<double>(o[c]);
      const double e = static_cast<double>(h[c] + y[c] - t[c]), w = static_cast<double>(h[c] + y[c] - o[c]);
      near[partial] += e * e;
      far[partial] += w * w;
      square[partial] += (a * a + b * b) + d * d;
    };
    std::int64_t c = 0;
    for (; c + kPartials <= k; c += kPartials)
      for (std::int64_t partial = 0; partial < kPartials; ++partial) add(c + partial, partial);
    for (; c < k; ++c) add(c, 0);
    f[i] = sum_of(near);
    g[i] = sum_of(far);
    squares[i] = sum_of(square);
  }
}

template <class T>
void pull(std::int64_t n, std::int64_t k, T* __restrict__ dp, T* __restrict__ dy, const T* __restrict__ projected,
          const T* __restrict__ y, const T* __restrict__ slope, T decay) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T *h = projected + i * k, *t = h + n * k, *o = t + n * k;
    T *dh = dp + i * k, *dt = dh + n * k, *dother = dt + n * k;
    const T a = slope[i];
#pragma GCC ivdep
    for (std::int64_t c = 0; c < k; ++c) {
      const T e = h[c] + y[c] - t[c], w = h[c] + y[c] - o[c], both = a * (e - w);
      dh[c] = both + decay * h[c];
      dt[c] = decay * t[c] - a * e;
      dother[c] = decay * o[c] + a * w;
      dy[c] += both + decay * y[c];
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(TransrKernels, transr_kernels, distances<T>, pull<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
