#include "elementwise_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Calls f(offset, get, put) for each vector of n elements; the last one may be partial.
template <class T, class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t n, const F& f) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t i = 0;
  for (; i + kL <= n; i += kL)
    f(
        i, [](const T* p) { return load(p); }, [](T* p, Vec<T> v) { store(p, v); });
  if (i == n) return;
  const Lanes<T> lanes(n - i);
  f(
      i, [lanes](const T* p) { return load(p, lanes); }, [lanes](T* p, Vec<T> v) { store(p, v, lanes); });
}

template <class T>
void add(std::int64_t n, T* y, const T* a, const T* b, const T* c) {
  for_vectors<T>(n, [&](std::int64_t i, const auto& get, const auto& put) {
    const Vec<T> sum = get(a + i) + get(b + i);
    put(y + i, c ? sum + get(c + i) : sum);
  });
}

template <class T>
void scale(std::int64_t n, T* y, const T* x, T factor, bool accumulate) {
  const Vec<T> f = splat(factor);
  if (accumulate)
    for_vectors<T>(n, [&](std::int64_t i, const auto& get, const auto& put) {
      const Vec<T> product = f * get(x + i);
      put(y + i, get(y + i) + product);
    });
  else
    for_vectors<T>(n, [&](std::int64_t i, const auto& get, const auto& put) { put(y + i, f * get(x + i)); });
}

template <class T>
T dot(std::int64_t n, const T* a, const T* b) {
  Vec<T> sum{};
  for_vectors<T>(n, [&](std::int64_t i, const auto& get, const auto&) { sum = fma(get(a + i), get(b + i), sum); });
  return total<T>(sum);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels, add<T>, scale<T>, dot<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
