#include "ops/common/row_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void add(std::int64_t n, T* y, const T* x, T factor) {
  const Vec<T> f = splat(factor);
  for_vectors<T>(n, [&](const auto& get, const auto& put) {
    const Vec<T> product = f * get(x);
    put(y, get(y) + product);
  });
}

template <class T>
T dot(std::int64_t n, const T* a, const T* b) {
  Vec<T> sum{};
  for_vectors<T>(n, [&](const auto& get, const auto&) { sum = fma(get(a), get(b), sum); });
  return total<T>(sum);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(RowKernels, row_kernels, add<T>, dot<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
