#include "simd.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Whether any lane of a lies above b: nearly always no, once the best are known.
LOCKSTEP_INLINE bool any_above(Vec<float> a, Vec<float> b) {
#if defined(LOCKSTEP_ISA_avx512)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#elif defined(LOCKSTEP_ISA_avx2)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ)) != 0;
#else
  bool any = false;
  for (int i = 0; i < kLanes<float>; ++i) any |= a[i] > b[i];
  return any;
#endif
}
LOCKSTEP_INLINE bool any_above(Vec<double> a, Vec<double> b) {
#if defined(LOCKSTEP_ISA_avx512)
  return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GT_OQ) != 0;
#elif defined(LOCKSTEP_ISA_avx2)
  return _mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_GT_OQ)) != 0;
#else
  bool any = false;
  for (int i = 0; i < kLanes<double>; ++i) any |= a[i] > b[i];
  return any;
#endif
}

template <class T>
std::int64_t above(std::int64_t n, const T* scores, T threshold, std::int32_t first, std::int32_t* item, T* score) {
  constexpr std::int64_t kL = kLanes<T>;
  const Vec<T> limit = splat(threshold);
  std::int64_t found = 0, i = 0;
  const auto take = [&](std::int64_t end) {
    for (std::int64_t j = i; j < end; ++j) {
      item[found] = first + static_cast<std::int32_t>(j);
      score[found] = scores[j];
      found += scores[j] > threshold;
    }
  };
  for (; i + kL <= n; i += kL)
    if (any_above(load(scores + i), limit)) take(i + kL);
  take(n);
  return found;
}

}  // namespace

template <class T>
AboveKernel<T> above_kernel() {
  return above<T>;
}
template AboveKernel<float> above_kernel<float>();
template AboveKernel<double> above_kernel<double>();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
