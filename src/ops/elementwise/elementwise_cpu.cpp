#include "elementwise_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void add(std::int64_t n, T* y, const T* a, const T* b, const T* c) {
  for_vectors<T>(n, [&](const auto& get, const auto& put) {
    const Vec<T> sum = get(a) + get(b);
    put(y, c ? sum + get(c) : sum);
  });
}

template <class T>
void scale(std::int64_t n, T* y, const T* x, T factor, bool accumulate) {
  const Vec<T> f = splat(factor);
  if (accumulate)
    for_vectors<T>(n, [&](const auto& get, const auto& put) {
      const Vec<T> product = f * get(x);
      put(y, get(y) + product);
    });
  else
    for_vectors<T>(n, [&](const auto& get, const auto& put) { put(y, f * get(x)); });
}

template <class T>
T dot(std::int64_t n, const T* a, const T* b) {
  Vec<T> sum{};
  for_vectors<T>(n, [&](const auto& get, const auto&) { sum = fma(get(a), get(b), sum); });
  return total<T>(sum);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels, add<T>, scale<T>, dot<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
