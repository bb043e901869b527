#include <limits>
#include <type_traits>

#include "ops/common/simd.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Whether any lane of a is above b. Nearly always false once the best items are known.
LOCKSTEP_INLINE bool any_above(Vec<float> a, Vec<float> b) {
#if defined(LOCKSTEP_ISA_avx512)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#elif defined(LOCKSTEP_ISA_avx2)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ)) != 0;
#elif defined(LOCKSTEP_ISA_asimd)
  return vmaxvq_u32((uint32x4_t)(a > b)) != 0;
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
#elif defined(LOCKSTEP_ISA_asimd)
  return vmaxvq_u32((uint32x4_t)(a > b)) != 0;
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

template <class T>
std::int64_t count_above(std::int64_t n, const T* scores, T limit) {
  constexpr std::int64_t kL = kLanes<T>;
  const Vec<T> limits = splat(limit);
  Vec<IntOf<T>> found[2] = {};
  std::int64_t i = 0;
  for (; i + 2 * kL <= n; i += 2 * kL) {
    found[0] -= load(scores + i) > limits;
    found[1] -= load(scores + i + kL) > limits;
  }
  std::int64_t count = 0;
  for (; i < n; ++i) count += scores[i] > limit;
  found[0] += found[1];
  for (int l = 0; l < kLanes<T>; ++l) count += found[0][l];
  return count;
}

/// All bits except the sign bit.
template <class T>
constexpr IntOf<T> kMagnitude = std::numeric_limits<IntOf<T>>::max();

/// Maps floating-point numbers to integers of the same order; -0 comes just before 0.
template <class T>
IntOf<T> ordered(T x) {
  const IntOf<T> bits = __builtin_bit_cast(IntOf<T>, x);
  return bits ^ ((bits >> (8 * sizeof(T) - 1)) & kMagnitude<T>);
}
template <class T>
T from_ordered(IntOf<T> bits) {
  return __builtin_bit_cast(T, static_cast<IntOf<T>>(bits ^ ((bits >> (8 * sizeof(T) - 1)) & kMagnitude<T>)));
}

template <class T>
T keep(std::int64_t n, std::int64_t k, std::int32_t* item, T* score) {
  // Bisect for a value that exactly k candidates exceed, or for the k-th best score if it is tied.
  T least = score[0], most = score[0];
  for (std::int64_t i = 1; i < n; ++i) {
    least = score[i] < least ? score[i] : least;
    most = score[i] > most ? score[i] : most;
  }
  using Wide = std::conditional_t<sizeof(T) == 4, std::int64_t, __int128>;
  Wide low = ordered(least), high = ordered(most);  // more than k are not below low; at most k are above high
  std::int64_t above_high = 0;
  while (low < high && above_high != k) {
    const Wide middle = low + (high - low) / 2;
    const std::int64_t count = count_above(n, score, from_ordered<T>(static_cast<IntOf<T>>(middle)));
    if (count > k)
      low = middle + 1;
    else {
      high = middle;
      above_high = count;
    }
  }
  const T limit = from_ordered<T>(static_cast<IntOf<T>>(high));
  std::int64_t equal = k - above_high, kept = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = score[i];
    const bool tie = x == limit && equal > 0;
    item[kept] = item[i];
    score[kept] = x;
    kept += x > limit || tie;
    equal -= tie;
  }
  return limit;
}

}  // namespace

template <class T>
TopItemsKernels<T> top_items_kernels() {
  return {above<T>, keep<T>};
}
LOCKSTEP_EACH_FLOAT(top_items_kernels)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
