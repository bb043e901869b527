#include "ops/common/simd.hpp"
#include "rmsnorm_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Two passes over a row, which stays in the first-level cache.
template <class T>
void forward(std::int64_t rows, std::int64_t columns, T* y, T* rstd, const T* x, T eps, RowSum<T> sum) {
  for (std::int64_t i = 0; i < rows; ++i, y += columns, x += columns) {
    Vec<T> squares{};
    for_vectors<T>(columns, [&](const auto& get, const auto&) {
      const Vec<T> v = get(x);
      squares = fma(v, v, squares);
    });
    const T scale = T{1} / root(total<T>(squares) / static_cast<T>(columns) + eps);
    if (rstd) rstd[i] = scale;
    for_vectors<T>(columns, [&](const auto& get, const auto& put) {
      const Vec<T> v = get(x) * splat(scale);
      put(y, v);
      if (sum.to) put(sum.to, sum.b ? v + get(sum.a) + get(sum.b) : v + get(sum.a));
    });
    if (!sum.to) continue;
    sum.to += columns;
    sum.a += columns;
    if (sum.b) sum.b += columns;
  }
}

template <class T>
void backward(std::int64_t rows, std::int64_t columns, T* dx, bool add, const T* dy, const T* y, const T* rstd) {
  for (std::int64_t i = 0; i < rows; ++i, y += columns, dy += columns, dx += columns) {
    Vec<T> products{};
    for_vectors<T>(columns, [&](const auto& get, const auto&) { products = fma(get(y), get(dy), products); });
    const Vec<T> mean = splat(-total<T>(products) / static_cast<T>(columns)), scale = splat(rstd[i]);
    for_vectors<T>(columns, [&](const auto& get, const auto& put) {
      const Vec<T> dv = scale * fma(get(y), mean, get(dy));
      put(dx, add ? get(dx) + dv : dv);
    });
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(RmsnormKernels, rmsnorm_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
