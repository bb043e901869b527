#include "ops/common/simd.hpp"
#include "rope_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void rotate(std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half, std::int64_t positions, T* x,
            const T* cos, const T* sin, T sign) {
  for (std::int64_t m = 0; m < rows; ++m) {
    const T *c = cos + m % positions * half, *s = sin + m % positions * half;
    for (std::int64_t j = 0; j < half; j += kLanes<T>) {
      const Lanes<T> lanes = lanes_at<T>(j, half);
      const Vec<T> cv = load(c + j, lanes), sv = load(s + j, lanes) * splat(sign);
      for (std::int64_t h = 0; h < heads; ++h) {
        T *a = x + m * width + h * 2 * half + j, *b = a + half;
        const Vec<T> av = load(a, lanes), bv = load(b, lanes);
        store(a, fma(av, cv, -(bv * sv)), lanes);
        store(b, fma(bv, cv, av * sv), lanes);
      }
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(RopeKernel, rope_kernel, rotate<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
