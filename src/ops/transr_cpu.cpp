#include "transr_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Partial sums side by side, added in one order whatever the vectors.
constexpr std::int64_t kParts = 8;

double sum_of(const double (&part)[kParts]) {
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

template <class T>
void distances(std::int64_t n, std::int64_t k, double* f, double* g, double* squares, const T* projected, const T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T *h = projected + i * k, *t = h + n * k, *o = t + n * k;
    double near[kParts] = {}, far[kParts] = {}, square[kParts] = {};
    const auto add = [&](std::int64_t c, std::int64_t part) {
      const double a = static_cast<double>(h[c]), b = static_cast<double>(t[c]), d = static_cast<double>(o[c]);
      const double e = static_cast<double>(h[c] + y[c] - t[c]), w = static_cast<double>(h[c] + y[c] - o[c]);
      near[part] += e * e;
      far[part] += w * w;
      square[part] += (a * a + b * b) + d * d;
    };
    std::int64_t c = 0;
    for (; c + kParts <= k; c += kParts)
      for (std::int64_t part = 0; part < kParts; ++part) add(c + part, part);
    for (; c < k; ++c) add(c, 0);
    f[i] = sum_of(near), g[i] = sum_of(far), squares[i] = sum_of(square);
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

template <class T>
TransrKernels<T> transr_kernels() {
  return {distances<T>, pull<T>};
}
template TransrKernels<float> transr_kernels<float>();
template TransrKernels<double> transr_kernels<double>();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
