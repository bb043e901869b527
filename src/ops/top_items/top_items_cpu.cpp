#include <limits>

#include "ops/common/simd.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Appends item + i and score of the lanes above the limit. Returns how many.
LOCKSTEP_INLINE std::int64_t append(Vec<float> scores, Vec<float> limit, Vec<std::int32_t> items, std::int32_t* item,
                                    float* score) {
#if defined(LOCKSTEP_ISA_avx512)
  const __mmask16 chosen = _mm512_cmp_ps_mask((__m512)scores, (__m512)limit, _CMP_GT_OQ);
  store(item, (Vec<std::int32_t>)_mm512_maskz_compress_epi32(chosen, (__m512i)items));
  store(score, (Vec<float>)_mm512_maskz_compress_ps(chosen, (__m512)scores));
  return __builtin_popcount(chosen);
#else
  std::int64_t found = 0;
  for (int i = 0; i < kLanes<float>; ++i) {
    item[found] = items[i];
    score[found] = scores[i];
    found += scores[i] > limit[i];
  }
  return found;
#endif
}

/// 0, 1, 2, ...
LOCKSTEP_INLINE Vec<std::int32_t> lane_numbers() {
  Vec<std::int32_t> lane;
  for (int i = 0; i < kLanes<float>; ++i) lane[i] = i;
  return lane;
}

std::int64_t above(std::int64_t n, const float* scores, float limit, std::int32_t first, std::int32_t* item,
                   float* score) {
  constexpr std::int64_t kL = kLanes<float>;
  const Vec<float> limits = splat(limit);
  const Vec<std::int32_t> lane = lane_numbers();
  std::int64_t found = 0, i = 0;
  for (; i + kL <= n; i += kL) {
    const Vec<float> some = load(scores + i);
    if (any(some > limits))
      found += append(some, limits, lane + (first + static_cast<std::int32_t>(i)), item + found, score + found);
  }
  for (; i < n; ++i) {
    item[found] = first + static_cast<std::int32_t>(i);
    score[found] = scores[i];
    found += scores[i] > limit;
  }
  return found;
}

std::int64_t select(std::int64_t n, float limit, std::int32_t* item, float* score) {
  constexpr std::int64_t kL = kLanes<float>;
  const Vec<float> limits = splat(limit);
  std::int64_t found = 0, i = 0;
  // Elements are written before the ones that are still to be read.
  for (; i + kL <= n; i += kL) found += append(load(score + i), limits, load(item + i), item + found, score + found);
  for (; i < n; ++i) {
    item[found] = item[i];
    score[found] = score[i];
    found += score[found] > limit;
  }
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

/// The range of n > 0 scores.
template <class T>
void range_of(std::int64_t n, const T* score, T& least, T& most) {
  constexpr std::int64_t kL = kLanes<T>;
  least = most = score[0];
  std::int64_t i = 0;
  if (n >= kL) {
    Vec<T> low = load(score), high = low;
    for (i = kL; i + kL <= n; i += kL) {
      low = min(load(score + i), low);
      high = max(load(score + i), high);
    }
    for (int l = 0; l < kLanes<T>; ++l) {
      least = low[l] < least ? low[l] : least;
      most = high[l] > most ? high[l] : most;
    }
  }
  for (; i < n; ++i) {
    least = score[i] < least ? score[i] : least;
    most = score[i] > most ? score[i] : most;
  }
}

/// A limit that at least k of n >= k > 0 scores reach and at most k + slack exceed, and how many exceed it. Bisects
/// values, not representations: scores are of one order of magnitude, while representations cover all of them.
template <class T>
T bisect(std::int64_t n, std::int64_t k, std::int64_t slack, const T* score, std::int64_t& exceed) {
  T low, high;  // at least k scores reach low, at most k exceed high
  range_of(n, score, low, high);
  constexpr T kLargest = std::numeric_limits<T>::max();
  for (exceed = 0; low < high;) {
    const T middle = low / 2 + (high < kLargest ? high : kLargest) / 2;
    const bool between = low < middle && middle < high;
    const std::int64_t count = count_above(n, score, between ? middle : low);
    if (!between) {
      if (count > k) return high;
      exceed = count;
      return low;
    }
    if (count > k + slack) {
      low = middle;
      continue;
    }
    high = middle;
    exceed = count;
    if (count >= k) return high;
  }
  return high;
}

void lower(std::int64_t n, const std::int32_t* __restrict__ item, const float* __restrict__ score, float codes,
           float rest, const float* __restrict__ item_rest, const float* __restrict__ item_part,
           float* __restrict__ lower) {
  for (std::int64_t i = 0; i < n; ++i)
    lower[i] = score[i] - 2 * (codes * item_rest[item[i]] + rest * item_part[item[i]]);
}

float limit(std::int64_t n, std::int64_t k, std::int64_t slack, const float* score) {
  std::int64_t exceed;
  return bisect(n, k, slack, score, exceed);
}

template <class T>
void keep(std::int64_t n, std::int64_t k, std::int32_t* item, T* score) {
  std::int64_t exceed, kept = 0;
  const T limit = bisect(n, k, std::int64_t{0}, score, exceed);
  std::int64_t equal = k - exceed;
  if constexpr (sizeof(T) == 4) {
    if (equal == 0) {
      select(n, limit, item, score);
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = score[i];
    const bool tie = x == limit && equal > 0;
    item[kept] = item[i];
    score[kept] = x;
    kept += x > limit || tie;
    equal -= tie;
  }
}

/// Adds 8 interleaved partial sums, in the same order for every vector width.
constexpr std::int64_t kPartials = 8;

template <class T>
T widest(std::int64_t d, const T* x, const T* centre) {
  // Not a comparison of values, because every comparison with NaN is false.
  IntOf<T> most = 0;
  for (std::int64_t c = 0; c < d; ++c) {
    const IntOf<T> size = __builtin_bit_cast(IntOf<T>, x[c] - centre[c]) & kMagnitude<T>;
    most = size > most ? size : most;
  }
  return __builtin_bit_cast(T, most);
}

template <class T>
Codes encode(std::int64_t d, const T* x, const T* centre, const T* typical, double scale, std::int32_t offset,
             std::uint8_t* q) {
  const T per_scale = static_cast<T>(1 / scale);
  constexpr T kRound = sizeof(T) == 4 ? T(12582912) : T(6755399441055744);  // 1.5 times 2^23, 2^52
  double sums[5][kPartials] = {};
  std::int32_t code_sums[kPartials] = {};
  // Loops of kPartials iterations each, which become vectors.
  const auto add = [&](std::int64_t c, std::int64_t count) {
    double part[kPartials] = {}, whole[kPartials] = {};
    std::int32_t code[kPartials] = {};
    T near[kPartials] = {};
    for (std::int64_t i = 0; i < count; ++i)
      near[i] = ((x[c + i] - centre[c + i]) * per_scale + kRound) - kRound;  // to the nearest integer
    for (std::int64_t i = 0; i < count; ++i) code[i] = static_cast<std::int32_t>(near[i]);
    for (std::int64_t i = 0; i < count; ++i) q[c + i] = static_cast<std::uint8_t>(code[i] + offset);
    for (std::int64_t i = 0; i < count; ++i) whole[i] = static_cast<double>(near[i]);
    for (std::int64_t i = 0; i < count; ++i)
      part[i] = static_cast<double>(x[c + i]) - static_cast<double>(centre[c + i]);
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(x[c + i]), rest = part[i] - scale * whole[i];
      sums[0][i] += value * value;
      sums[1][i] += part[i] * part[i];
      sums[2][i] += whole[i] * whole[i];
      sums[3][i] += rest * rest;
      code_sums[i] += code[i];
    }
    if (typical == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) sums[4][i] += part[i] * static_cast<double>(typical[c + i]);
  };
  std::int64_t c = 0;
  for (; c + kPartials <= d; c += kPartials) add(c, kPartials);
  if (c < d) add(c, d - c);
  double total[5] = {};
  std::int32_t code_sum = 0;
  for (std::int64_t partial = 0; partial < kPartials; ++partial) {
    for (int s = 0; s < 5; ++s) total[s] += sums[s][partial];
    code_sum += code_sums[partial];
  }
  return {total[0], total[1], total[2], total[3], total[4], code_sum};
}

/// Adds the products of elements c .. c + count - 1 of each row and of the user to the sums.
template <class T, bool kPart>
LOCKSTEP_INLINE Vec<T> chains(Vec<T> sum, std::int64_t count, const T* const* row, std::int64_t c, const T* user) {
  const Lanes<T> lanes(count);
  Vec<T> v[kLanes<T>];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes<T>; ++r) v[r] = kPart ? load(row[r] + c, lanes) : load(row[r] + c);
  transpose<T>(v);
#pragma GCC unroll 16
  for (int r = 0; r < kLanes<T>; ++r)
    if (!kPart || r < count) sum = fma(splat(user[c + r]), v[r], sum);
  return sum;
}

/// Computes two vectors of candidates at a time: each lane is the chain of one candidate, and square blocks of their
/// rows are transposed in registers. A single chain would wait for its own multiply-adds.
template <class T>
void exact(std::int64_t n, std::int64_t d, const T* rows, const T* user, const std::int32_t* item, T* score) {
  constexpr std::int64_t kL = kLanes<T>, kBoth = 2 * kL;
  constexpr std::int64_t kLine = 64;
  for (std::int64_t i = 0; i < n; i += kBoth) {
    const T* row[kBoth];
    for (std::int64_t r = 0; r < kBoth; ++r) row[r] = rows + item[i + r < n ? i + r : n - 1] * d;
    for (std::int64_t r = i + kBoth; r < i + 2 * kBoth && r < n; ++r) {
      const char* next = reinterpret_cast<const char*>(rows + item[r] * d);
      for (std::int64_t b = 0; b < d * static_cast<std::int64_t>(sizeof(T)); b += kLine) __builtin_prefetch(next + b);
    }
    Vec<T> sum[2] = {};
    std::int64_t c = 0;
    for (; c + kL <= d; c += kL)
      for (int half = 0; half < 2; ++half) sum[half] = chains<T, false>(sum[half], kL, row + half * kL, c, user);
    if (c < d)
      for (int half = 0; half < 2; ++half) sum[half] = chains<T, true>(sum[half], d - c, row + half * kL, c, user);
    const std::int64_t count = n - i < kBoth ? n - i : kBoth;
    for (std::int64_t r = 0; r < count; ++r) score[i + r] = sum[r / kL][r % kL];
  }
}

/// Compares each candidate with all others: for a few hundred of them faster than sorting, whose branches the processor
/// cannot predict.
template <class T>
void rank(std::int64_t n, const T* score, std::int32_t* rank) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t i = 0; i < n; i += kL) {
    const Vec<T> own = load(score + i);
    Vec<IntOf<T>> better{};
    std::int64_t j = 0;
    for (; j < i; ++j) better -= splat(score[j]) >= own;
    for (; j < n && j < i + kL; ++j) {
      Vec<IntOf<T>> later;
      for (int l = 0; l < kLanes<T>; ++l) later[l] = l > j - i ? -1 : 0;
      better -= (splat(score[j]) > own) | ((splat(score[j]) == own) & later);
    }
    for (; j < n; ++j) better -= splat(score[j]) > own;
    for (std::int64_t l = 0; l < kL; ++l) rank[i + l] = static_cast<std::int32_t>(better[l]);
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(TopItemsKernels, top_items_kernels, widest<T>, encode<T>, above, lower, limit, select, exact<T>,
                      keep<T>, rank<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
