#pragma once
// The time-aware terms of attention, one query at a time: sums over keys with one vector for each bucket.
//
// Without element masks everything is a sum over the row's distinct buckets: all keys with times beyond the table form
// one prefix, and consecutive keys with equal times share a bucket, whatever the query. So the sequence is divided into
// groups of equal times once, and a row is a short list of runs: the prefix, then groups. With element masks everything
// is a sum over keys.
#include "causal_attention_kernels.hpp"
#include "ops/common/philox_simd.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

LOCKSTEP_INLINE std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Vectors of a row that are processed together, 2 or 4. Rows of tables are padded to a multiple of them.
template <class T>
LOCKSTEP_INLINE int time_vectors(std::int64_t width) {
  return width <= 2 * kLanes<T> ? 2 : 4;
}
template <class T>
LOCKSTEP_INLINE std::int64_t time_width(std::int64_t width) {
  return round_up(width, time_vectors<T>(width) * kLanes<T>);
}

/// Bit i is set if byte i is at least the threshold.
LOCKSTEP_INLINE std::uint64_t at_least(const std::uint8_t* bytes, std::int32_t threshold) {
#if defined(LOCKSTEP_ISA_avx512)
  return _mm512_cmpge_epu8_mask(_mm512_loadu_si512(bytes), _mm512_set1_epi8(static_cast<char>(threshold)));
#elif defined(LOCKSTEP_ISA_avx2)
  const __m256i limit = _mm256_set1_epi8(static_cast<char>(threshold));
  const auto half = [&](const std::uint8_t* from) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(v, limit), v)));
  };
  return half(bytes) | static_cast<std::uint64_t>(half(bytes + 32)) << 32;
#elif defined(LOCKSTEP_ISA_asimd)
  const uint8x16_t limit = vdupq_n_u8(static_cast<std::uint8_t>(threshold));
  const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; i += 16) {
    const uint8x16_t found = vandq_u8(vcgeq_u8(vld1q_u8(bytes + i), limit), bit);
    bits |= std::uint64_t{vaddv_u8(vget_low_u8(found))} << i | std::uint64_t{vaddv_u8(vget_high_u8(found))} << (i + 8);
  }
  return bits;
#else
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; ++i) bits |= static_cast<std::uint64_t>(bytes[i] >= threshold) << i;
  return bits;
#endif
}

/// Bit i is set if draw i of 64 is at least the threshold.
LOCKSTEP_INLINE std::uint64_t at_least(const std::uint16_t* draws, std::int32_t threshold) {
#if defined(LOCKSTEP_ISA_avx512)
  if (threshold > 0xffff) return 0;
  const __m512i limit = _mm512_set1_epi16(static_cast<short>(threshold));
  const auto half = [&](const std::uint16_t* from) { return _mm512_cmpge_epu16_mask(_mm512_loadu_si512(from), limit); };
  return half(draws) | static_cast<std::uint64_t>(half(draws + 32)) << 32;
#else
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; ++i) bits |= static_cast<std::uint64_t>(draws[i] >= threshold) << i;
  return bits;
#endif
}

/// Rows that go through each step together: the operations of one row alone form a chain in which each waits for the
/// one before it.
inline constexpr std::int64_t kTogether = 4;

/// Scratch memory and tables of one head of one sequence, and the state of the current row.
template <class T, int NV>
class TimeRows {
 public:
  static constexpr std::int64_t kL = kLanes<T>, kChunk = NV * kL;
  /// Bytes of scratch memory for sequences up to `length`.
  static std::int64_t scratch_bytes(std::int64_t length, std::int64_t width) {
    const std::int64_t cells = round_up(length + kL, 64);
    return cells * ((kTogether + 1) * 4 + 8 + 4 * static_cast<std::int64_t>(sizeof(T))) +
           16 * words_per_key(width) * (cells + 4) + cells / 8 + 512;
  }
  TimeRows(const CausalHead<T>& head, char* scratch)
      : time_(head.time), width_(round_up(head.width, kChunk)), words_(words_per_key(head.width)) {
    const std::int64_t cells = round_up(head.length + kL, 64);
    group_time_ = reinterpret_cast<std::int64_t*>(scratch);
    buckets_ = reinterpret_cast<std::int32_t*>(group_time_ + cells);
    group_ = buckets_ + kTogether * cells;
    value_ = reinterpret_cast<T*>(group_ + cells);
    continues_ = value_ + 3 * cells;
    continue_bits_ = reinterpret_cast<std::uint64_t*>(continues_ + cells);
    masks_ = continue_bits_ + cells / 64 + 1;
    cells_ = cells;
    if (!time_.keys || time_.threshold > 0) return;
    for (std::int64_t w = 0; w <= cells / 64; ++w) continue_bits_[w] = 0;
    std::int32_t group = -1;
    for (std::int64_t j = 0; j < head.length; ++j) {
      const bool same = j > 0 && time_.times[j] == time_.times[j - 1];
      group += !same;
      group_[j] = group;
      group_time_[group] = time_.times[j];
      continues_[j] = same;
      continue_bits_[j / 64] |= static_cast<std::uint64_t>(same) << (j % 64);
    }
    for (std::int64_t j = head.length; j < head.length + kL; ++j) group_[j] = group;  // pads the last vector
  }

  /// Rows that begin() may prepare before they are resumed.
  std::int64_t together() const { return time_.threshold > 0 ? 1 : kTogether; }
  /// Prepares query i, whose keys are 0..i, as row `slot` of those prepared together, and makes it the current one.
  /// Queries must come in ascending order.
  LOCKSTEP_INLINE void begin(std::int64_t i, std::int64_t slot) {
    keys_ = i + 1;
    bucket_ = buckets_ + slot * cells_;
    const std::int64_t* times = time_.times;
    while (far_ <= i && times[i] - times[far_] >= time_.last) ++far_;
    if (time_.threshold > 0) {
      for (std::int64_t j = 0; j < far_; ++j) bucket_[j] = static_cast<std::int32_t>(time_.last);
      for (std::int64_t j = far_; j <= i; ++j) bucket_[j] = static_cast<std::int32_t>(times[i] - times[j]);
      count_ = keys_;
      draw_masks(i);
    } else {
      // The far keys are run 0, even if there are none. They end where a group ends.
      bucket_[0] = static_cast<std::int32_t>(time_.last);
      first_ = far_ <= i ? group_[far_] : group_[i] + 1;
      count_ = group_[i] - first_ + 2;
      const std::int64_t* group_times = group_time_ + first_ - 1;
      for (std::int64_t n = 1; n < count_; ++n) bucket_[n] = static_cast<std::int32_t>(times[i] - group_times[n]);
    }
    for (std::int64_t n = count_; n < count_ + kL; ++n) bucket_[n] = 0;  // pads the last vector
    prepared_[slot] = {far_, keys_, count_, first_};
  }
  /// Makes a prepared query the current one.
  LOCKSTEP_INLINE void resume(std::int64_t slot) {
    const Row& row = prepared_[slot];
    far_ = row.far;
    keys_ = row.keys;
    count_ = row.count;
    first_ = row.first;
    bucket_ = buckets_ + slot * cells_;
  }

  /// s_j += row . table_r(j), with the keys' masks (kSide 0) or the values' masks (1).
  template <int kSide>
  LOCKSTEP_INLINE void add_products(const T* table, const T* row, T* s) {
    if (time_.threshold > 0) {
      for (std::int64_t j = 0; j < keys_; j += kL) store(s + j, load(s + j) + products<true, kSide, kL>(table, row, j));
      return;
    }
    constexpr std::int64_t kHalf = kL > 4 ? kL / 2 : kL;  // half of the rows have no more than eight runs
    std::int64_t n = 0;
    for (; count_ - n > kHalf; n += kL) store(value_ + n, products<false, kSide, kL>(table, row, n));
    if (n < count_) store(value_ + n, products<false, kSide, kHalf>(table, row, n));
#if defined(LOCKSTEP_ISA_avx512)
    if constexpr (sizeof(T) == 4) {
      if (count_ <= 2 * kL) {  // the runs' values fit in two registers, and far keys have groups before the first
        const Vec<T> low = load(value_), high = load(value_ + kL);
        const Vec<std::int32_t> none{}, before = splat(static_cast<std::int32_t>(first_ - 1));
        for (std::int64_t j = 0; j < keys_; j += kL) {
          const Vec<std::int32_t> run = load(group_ + j) - before, near = run > none ? run : none;
          store(s + j, load(s + j) + (Vec<T>)_mm512_permutex2var_ps((__m512)low, (__m512i)near, (__m512)high));
        }
        return;
      }
    }
#endif
    const T far = value_[0];
    for (std::int64_t j = 0; j < far_; ++j) s[j] += far;
    const T* of_group = value_ + 1 - first_;
    for (std::int64_t j = far_; j < keys_; ++j) s[j] += of_group[group_[j]];
  }

  /// out = sum_j weight_j table_r(j), with the values' masks.
  LOCKSTEP_INLINE void sum_values(const T* weight, const T* table, T* out) {
    if (time_.threshold > 0) return sum<true, 1>(weight, table, out);
    sum_runs<1>({weight});
    sum<false, 1>(totals(0), table, out);
  }

  /// out = sum_j dscore_j keys_r(j). Unless they are null, dkeys_r(j) += dscore_j q and dvalues_r(j) += weight_j dy.
  LOCKSTEP_INLINE void gradients(const T* dscore, const T* weight, const T* keys, T* out, const T* q, T* dkeys,
                                 const T* dy, T* dvalues) {
    if (time_.threshold > 0) {
      sum<true, 0>(dscore, keys, out);
      if (dkeys) spread<true, 0>(dscore, q, dkeys);
      if (dvalues) spread<true, 1>(weight, dy, dvalues);
      return;
    }
    sum_runs<2>({dscore, weight});
    sum<false, 0>(totals(0), keys, out);
    if (dkeys) spread<false, 0>(totals(0), q, dkeys);
    if (dvalues) spread<false, 1>(totals(1), dy, dvalues);
  }

  std::int64_t width() const { return width_; }

 private:
  T* totals(int side) const { return value_ + (1 + side) * cells_; }

#if defined(LOCKSTEP_ISA_avx512)
  /// The sums of groups of keys, 16 keys at a time: each lane adds the lanes before it that belong to its group, in
  /// steps of 1, 2, 4 and 8, and the unfinished sum of the previous vector's last group. The last lane of a group holds
  /// its sum.
  LOCKSTEP_INLINE void sum_groups(const float* weight, float* sums) const {
    const auto shifted = [](Vec<float> v, __mmask16 mask, auto by) {
      Vec<std::int32_t> from;
      for (int i = 0; i < 16; ++i) from[i] = (i - by.value) & 15;
      return (Vec<float>)_mm512_maskz_permutexvar_ps(mask, (__m512i)from, (__m512)v);
    };
    Vec<float> open{};
    for (std::int64_t j = far_; j < keys_; j += 16) {
      const std::int64_t left = keys_ - j < 16 ? keys_ - j : 16;
      std::uint32_t bits;  // of this vector's keys and the next one
      __builtin_memcpy(&bits, reinterpret_cast<const char*>(continue_bits_) + j / 8, sizeof(bits));
      bits >>= j % 8;
      const std::uint32_t in = bits & ~1u, two = in & in << 1, four = two & two << 2, eight = four & four << 4;
      const Lanes<float> lanes(left);
      Vec<float> v = load(weight + j, lanes);
      v += shifted(v, static_cast<__mmask16>(in), std::integral_constant<int, 1>{});
      if (two & 0xffff) v += shifted(v, static_cast<__mmask16>(two), std::integral_constant<int, 2>{});
      if (four & 0xffff) v += shifted(v, static_cast<__mmask16>(four), std::integral_constant<int, 4>{});
      if (eight & 0xffff) v += shifted(v, static_cast<__mmask16>(eight), std::integral_constant<int, 8>{});
      const std::uint32_t first = j == far_ ? 0 : bits & ~(bits + 1);
      v += (Vec<float>)_mm512_maskz_mov_ps(static_cast<__mmask16>(first), (__m512)open);
      open = (Vec<float>)_mm512_maskz_permutexvar_ps(0xffff, _mm512_set1_epi32(15), (__m512)v);
      const std::uint32_t last = 1u << (left - 1);
      const std::uint32_t ends = (~(bits >> 1) | (j + left == keys_ ? last : 0)) & (2 * last - 1);
      const int count = __builtin_popcount(ends);
      if (count > 0)
        store(sums, (Vec<float>)_mm512_maskz_compress_ps(static_cast<__mmask16>(ends), (__m512)v), Lanes<float>(count));
      sums += count;
    }
  }
#endif

  /// totals(i) receives the sums of weights[i] over the keys of each run. Without AVX-512 the keys are divided in two
  /// at the start of a group: two independent chains of additions.
  template <int kSides>
  LOCKSTEP_INLINE void sum_runs(const T* const (&weights)[kSides]) {
    for (int i = 0; i < kSides; ++i) {
      Vec<T> far{};
      std::int64_t j = 0;
      for (; j + kL <= far_; j += kL) far += load(weights[i] + j);
      if (j < far_) far += load(weights[i] + j, Lanes<T>(far_ - j));
      totals(i)[0] = total<T>(far);
    }
#if defined(LOCKSTEP_ISA_avx512)
    if constexpr (sizeof(T) == 4) {
      for (int i = 0; i < kSides; ++i) sum_groups(weights[i], totals(i) + 1);
      return;
    }
#endif
    std::int64_t middle = (far_ + keys_) / 2;
    while (middle > far_ && continues_[middle] != 0) --middle;
    T sums[2][kSides] = {};
    // A group's last key stores its sum.
    const auto add = [&](T(&sum)[kSides], std::int64_t j) {
#pragma GCC unroll 2
      for (int i = 0; i < kSides; ++i) {
        sum[i] = sum[i] * continues_[j] + weights[i][j];
        totals(i)[1 - first_ + group_[j]] = sum[i];
      }
    };
    std::int64_t a = far_, b = middle;
    for (; a < middle && b < keys_; ++a, ++b) {
      add(sums[0], a);
      add(sums[1], b);
    }
    for (; a < middle; ++a) add(sums[0], a);
    for (; b < keys_; ++b) add(sums[1], b);
  }

  static std::int64_t words_per_key(std::int64_t width) { return (round_up(width, kChunk) + 63) / 64; }

  /// Mask bits: for each key the words of its key vector, then those of its value vector. The words are the 8-bit draws
  /// of the query's groups in order.
  void draw_masks(std::int64_t i) {
    const std::int64_t words = 2 * words_ * keys_;
    alignas(64) std::uint32_t draws[kGroupWords];
    for (std::int64_t w = 0; w < words; w += 4) {
      philox_group(time_.draws, static_cast<std::uint64_t>(i) << 28 | static_cast<std::uint64_t>(w / 4), draws);
      asm volatile("" : : : "memory");  // the words are read as bytes
      for (int q = 0; q < 4; ++q)
        masks_[w + q] = at_least(reinterpret_cast<const std::uint8_t*>(draws + 16 * q), time_.threshold);
    }
    for (std::int64_t w = words; w < words + 2 * words_ * kL; ++w) masks_[w] = 0;  // pads the last vector
  }
  template <int kSide>
  LOCKSTEP_INLINE std::uint32_t mask(std::int64_t j, std::int64_t channel) const {
    const std::uint64_t* words = masks_ + (2 * j + kSide) * words_;
    if constexpr (kL >= 8) {  // AVX-512 loads whole bytes directly into a mask
      std::conditional_t<kL == 16, std::uint16_t, std::uint8_t> bits;
      __builtin_memcpy(&bits, reinterpret_cast<const char*>(words) + channel / 8, sizeof(bits));
      return bits;
    } else {
      return static_cast<std::uint32_t>(words[channel / 64] >> (channel % 64)) & ((1u << kL) - 1u);
    }
  }

  /// Lane l < kRuns is row . table_bucket(first + l).
  template <bool kMasked, int kSide, int kRuns>
  LOCKSTEP_INLINE Vec<T> products(const T* table, const T* row, std::int64_t first) const {
    Vec<T> v[kRuns];
    for (int l = 0; l < kRuns; ++l) v[l] = Vec<T>{};
    for (std::int64_t c = 0; c < width_; c += kChunk) {
      Vec<T> x[NV];
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) x[n] = load(row + c + n * kL);
#pragma GCC unroll 16
      for (int l = 0; l < kRuns; ++l) {
        const T* t = table + bucket_[first + l] * width_ + c;
#pragma GCC unroll 4
        for (int n = 0; n < NV; ++n)
          v[l] = kMasked ? fma_where(mask<kSide>(first + l, c + n * kL), x[n], load(t + n * kL), v[l])
                         : fma(x[n], load(t + n * kL), v[l]);
      }
    }
    return sum_of<kRuns, T>(v);
  }

  /// out = sum_n weight_n table_bucket(n), as two interleaved sums, because each addition waits for the one before it.
  template <bool kMasked, int kSide>
  LOCKSTEP_INLINE void sum(const T* weight, const T* table, T* out) const {
    for (std::int64_t c = 0; c < width_; c += kChunk) {
      Vec<T> y[2][NV] = {};
      const auto add = [&](std::int64_t j, int chain) __attribute__((always_inline)) {
        const T* t = table + bucket_[j] * width_ + c;
        const Vec<T> w = splat(weight[j]);
#pragma GCC unroll 4
        for (int n = 0; n < NV; ++n)
          y[chain][n] = kMasked ? fma_where(mask<kSide>(j, c + n * kL), w, load(t + n * kL), y[chain][n])
                                : fma(w, load(t + n * kL), y[chain][n]);
      };
      std::int64_t j = 0;
      for (; j + 2 <= count_; j += 2) {
        add(j, 0);
        add(j + 1, 1);
      }
      if (j < count_) add(j, 0);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) store(out + c + n * kL, y[0][n] + y[1][n]);
    }
  }

  /// dtable_bucket(n) += weight_n row
  template <bool kMasked, int kSide>
  LOCKSTEP_INLINE void spread(const T* weight, const T* row, T* dtable) const {
    for (std::int64_t c = 0; c < width_; c += kChunk) {
      Vec<T> x[NV];
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) x[n] = load(row + c + n * kL);
      std::int64_t j = 0;
      if (kMasked && far_ > 0) {  // far keys share one bucket, so their sum stays in registers
        T* t = dtable + time_.last * width_ + c;
        Vec<T> y[NV];
#pragma GCC unroll 4
        for (int n = 0; n < NV; ++n) y[n] = load(t + n * kL);
        for (; j < far_; ++j) {
          const Vec<T> w = splat(weight[j]);
#pragma GCC unroll 4
          for (int n = 0; n < NV; ++n) y[n] = fma_where(mask<kSide>(j, c + n * kL), w, x[n], y[n]);
        }
#pragma GCC unroll 4
        for (int n = 0; n < NV; ++n) store(t + n * kL, y[n]);
      }
      for (; j < count_; ++j) {
        T* t = dtable + bucket_[j] * width_ + c;
        const Vec<T> w = splat(weight[j]);
#pragma GCC unroll 4
        for (int n = 0; n < NV; ++n)
          store(t + n * kL, kMasked ? fma_where(mask<kSide>(j, c + n * kL), w, x[n], load(t + n * kL))
                                    : fma(w, x[n], load(t + n * kL)));
      }
    }
  }

  const TimeHead<T>& time_;
  std::int64_t width_, words_, cells_ = 0;
  std::int64_t far_ = 0;    ///< keys 0..far_-1 are in the last bucket
  std::int64_t keys_ = 0;   ///< of this row
  std::int64_t count_ = 0;  ///< number of runs, or of keys if each has a mask
  std::int64_t first_ = 0;  ///< the group of run 1
  struct Row {
    std::int64_t far, keys, count, first;
  };
  Row prepared_[kTogether];
  std::int32_t *buckets_, *bucket_, *group_;  ///< of all prepared rows; of each run (or key); of each key
  std::int64_t* group_time_;
  T* value_;                      ///< products with the rows of the table; then totals() twice
  T* continues_;                  ///< 1 if the key belongs to the group of the key before it, else 0
  std::uint64_t* continue_bits_;  ///< bit j: continues_[j]
  std::uint64_t* masks_;
};

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
