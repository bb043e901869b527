#include "lockstep/base/f16.hpp"
#include "ops/common/simd.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "spmm_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Prefetch distance in entries.
constexpr std::int64_t kPrefetch = 48;
/// If rows are not consecutive, or only some of their entries count, they are computed in groups of about this many
/// entries. A group's entries are copied, so that prefetches run ahead across its rows; the copy stays in the caches.
constexpr std::int64_t kGroupEntries = 4096, kGroupRows = 512;
constexpr std::int64_t kLine = 64;

LOCKSTEP_INLINE Vec<float> read(const float* p) { return load(p); }
LOCKSTEP_INLINE Vec<double> read(const double* p) { return load(p); }
/// bf16 is the upper half of f32.
LOCKSTEP_INLINE Vec<float> read(const bf16* p) {
  typedef std::uint16_t Half __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
  return (Vec<float>)(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Vec<std::int32_t>) << 16);
}
LOCKSTEP_INLINE Vec<float> read(const f16* p) {
#if defined(LOCKSTEP_ISA_avx512)
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (Vec<float>)_mm512_maskz_cvtph_ps(0xffff, half);  // GCC 12 warns about the plain form
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<float>)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(LOCKSTEP_ISA_asimd)
  return (Vec<float>)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
#else
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = from_f16(p[i].bits);
  return v;
#endif
}
/// Reads `count` elements; the other lanes are 0.
template <class T, class X>
LOCKSTEP_INLINE Vec<T> read_first(const X* p, Lanes<T> lanes, std::int64_t count) {
  if constexpr (std::is_same_v<X, T>) {
    return load(p, lanes);
  } else {
    X values[kLanes<T>] = {};
    for (std::int64_t i = 0; i < count; ++i) values[i] = p[i];
    return read(values);
  }
}

/// The entries of one row: row numbers of x, and values.
template <class T>
struct Entries {
  const std::int32_t* column;
  const T* value;
  std::int64_t count;
  std::int64_t known;  ///< entries of this row and of those after it
};

template <class X>
LOCKSTEP_INLINE void prefetch(const X* x, std::int64_t columns) {
  const char* p = reinterpret_cast<const char*>(x);
  for (std::int64_t b = 0; b < columns * static_cast<std::int64_t>(sizeof(X)); b += kLine)
    __builtin_prefetch(p + b, 0, 3);
}

/// Columns [at, at + kVectors vectors) of one row of y. kTail: the last vector has only `rest` lanes.
template <class T, class X, int kVectors, bool kTail>
LOCKSTEP_INLINE void row_block(const SpmmArguments<T, X>& a, const Entries<T>& entries, T* y, std::int64_t at,
                               std::int64_t rest) {
  constexpr int kFull = kTail ? kVectors - 1 : kVectors;
  const Lanes<T> lanes(kTail ? rest : kLanes<T>);
  Vec<T> sum[kVectors] = {};
  const X* const from = a.x + at;
  for (std::int64_t e = 0; e < entries.count; ++e) {
    if (e + kPrefetch < entries.known)
      prefetch(from + entries.column[e + kPrefetch] * a.width, kFull * kLanes<T> + (kTail ? rest : 0));
    const X* x = from + entries.column[e] * a.width;
    const Vec<T> value = splat(entries.value[e]);
#pragma GCC unroll 8
    for (int v = 0; v < kFull; ++v) sum[v] = fma(value, read(x + v * kLanes<T>), sum[v]);
    if constexpr (kTail) sum[kFull] = fma(value, read_first(x + kFull * kLanes<T>, lanes, rest), sum[kFull]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kFull; ++v) {
    T* to = y + at + v * kLanes<T>;
    store(to, a.accumulate ? load(to) + sum[v] : sum[v]);
  }
  if constexpr (kTail) {
    T* to = y + at + kFull * kLanes<T>;
    store(to, a.accumulate ? load(to, lanes) + sum[kFull] : sum[kFull], lanes);
  }
}

template <class T, class X>
LOCKSTEP_INLINE void row_of(const SpmmArguments<T, X>& a, const Entries<T>& entries, T* y) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t at = 0;
  for (; at + 8 * kL <= a.width; at += 8 * kL) row_block<T, X, 8, false>(a, entries, y, at, 0);
  if (at + 4 * kL <= a.width) row_block<T, X, 4, false>(a, entries, y, at, 0), at += 4 * kL;
  if (at + 2 * kL <= a.width) row_block<T, X, 2, false>(a, entries, y, at, 0), at += 2 * kL;
  if (at + kL <= a.width) row_block<T, X, 1, false>(a, entries, y, at, 0), at += kL;
  if (at < a.width) row_block<T, X, 1, true>(a, entries, y, at, a.width - at);
}

/// Copies the entries of a row whose columns are in the set, or all if it is null. Returns how many. May write one
/// element more. Branch-free, because the processor could not predict a branch.
template <class T>
LOCKSTEP_INLINE std::int64_t select(const std::uint64_t* set, std::int64_t count, const std::int32_t* from,
                                    const T* values, std::int32_t* column, T* value) {
  if (set == nullptr) {
    for (std::int64_t e = 0; e < count; ++e) column[e] = from[e];
    for (std::int64_t e = 0; e < count; ++e) value[e] = values[e];
    return count;
  }
  std::int64_t found = 0;
  for (std::int64_t e = 0; e < count; ++e) {
    const auto c = static_cast<std::uint32_t>(from[e]);
    column[found] = from[e];
    value[found] = values[e];
    found += static_cast<std::int64_t>((set[c / 64] >> (c % 64)) & 1);
  }
  return found;
}

/// Rows [first, last) of the set, whose entries are contiguous. end_of(i): the end of row i's entries.
template <class T, class X, class End>
LOCKSTEP_INLINE void multiply(const SpmmArguments<T, X>& a, const RowSet& rows, std::int64_t first, std::int64_t last,
                              const std::int32_t* column, const T* value, const End& end_of) {
  const std::int64_t all = end_of(last - 1);
  for (std::int64_t e = 0; e < all && e < kPrefetch; ++e) prefetch(a.x + column[e] * a.width, a.width);
  std::int64_t begin = 0;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t end = end_of(i);
    row_of(a, Entries<T>{column + begin, value + begin, end - begin, all - begin}, a.y + rows[i] * a.width);
    begin = end;
  }
}

template <class T, class X>
void spmm(const SpmmArguments<T, X>& a, const RowSet& rows, std::int64_t first, std::int64_t count) {
  if (count == 0) return;
  const std::int64_t last = first + count, begin = a.indptr[rows[first]];
  const auto entries_of = [&](std::int64_t i) { return a.indptr[rows[i] + 1] - a.indptr[rows[i]]; };
  if (a.columns == nullptr && rows[last - 1] - rows[first] == count - 1)
    return multiply(a, rows, first, last, a.column + begin, a.values + begin,
                    [&](std::int64_t i) { return a.indptr[rows[i] + 1] - begin; });
  std::int64_t capacity = 0;
  for (std::int64_t i = first; i < last; ++i) capacity = entries_of(i) > capacity ? entries_of(i) : capacity;
  capacity += kGroupEntries + 1;
  T* value = static_cast<T*>(
      thread_scratch(Scratch::partial, static_cast<std::size_t>(capacity) * (sizeof(T) + sizeof(std::int32_t))));
  auto* column = reinterpret_cast<std::int32_t*>(value + capacity);
  std::int64_t ends[kGroupRows];
  for (std::int64_t i = first; i < last;) {
    const std::int64_t start = i;
    for (std::int64_t found = 0; i < last && i - start < kGroupRows && found < kGroupEntries; ++i) {
      const std::int64_t at = a.indptr[rows[i]];
      found += select(a.columns, entries_of(i), a.column + at, a.values + at, column + found, value + found);
      ends[i - start] = found;
    }
    multiply(a, rows, start, i, column, value, [&](std::int64_t r) { return ends[r - start]; });
  }
}

}  // namespace

template <class Arguments>
SpmmKernel<Arguments> spmm_kernel() {
  return spmm;
}
template SpmmKernel<SpmmArguments<float, float>> spmm_kernel();
template SpmmKernel<SpmmArguments<double, double>> spmm_kernel();
template SpmmKernel<SpmmArguments<float, bf16>> spmm_kernel();
template SpmmKernel<SpmmArguments<float, f16>> spmm_kernel();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
