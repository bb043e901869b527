#include "simd.hpp"
#include "spmm_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Entries between the one that is multiplied and the one whose row of x is asked for: long enough for memory, short
/// enough that most rows reach it.
constexpr std::int64_t kAhead = 12;
constexpr std::int64_t kLine = 64;

template <class T>
LOCKSTEP_INLINE Vec<T> read(const T* p) {
  return load(p);
}
template <class T>
LOCKSTEP_INLINE Vec<T> read(const T* p, Lanes<T> lanes) {
  return load(p, lanes);
}
/// Sixteen upper halves of f32.
LOCKSTEP_INLINE Vec<float> read(const bf16* p) {
  typedef std::uint16_t Half __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
  return (Vec<float>)(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Vec<std::int32_t>) << 16);
}
LOCKSTEP_INLINE Vec<float> read(const bf16* p, Lanes<float> lanes, std::int64_t count) {
  alignas(64) float values[kLanes<float>] = {};
  for (std::int64_t i = 0; i < count; ++i)
    reinterpret_cast<std::uint32_t*>(values)[i] = static_cast<std::uint32_t>(p[i].bits) << 16;
  return load(values, lanes);
}
template <class T>
LOCKSTEP_INLINE Vec<T> read_part(const T* p, Lanes<T> lanes, std::int64_t) {
  return read(p, lanes);
}
LOCKSTEP_INLINE Vec<float> read_part(const bf16* p, Lanes<float> lanes, std::int64_t count) {
  return read(p, lanes, count);
}

LOCKSTEP_INLINE bool has(const std::uint64_t* bits, std::int32_t i) { return (bits[i / 64] >> (i % 64)) & 1; }

/// Columns [column, column + kVectors lanes) of one row of y; kTail: the last vector has `rest` lanes.
template <class T, class X, int kVectors, bool kTail, bool kMasked>
LOCKSTEP_INLINE void row_block(const SpmmArguments<T, X>& a, std::int64_t begin, std::int64_t end, std::int64_t last,
                               T* y, std::int64_t at, std::int64_t rest) {
  constexpr int kFull = kTail ? kVectors - 1 : kVectors;
  const Lanes<T> lanes(kTail ? rest : kLanes<T>);
  Vec<T> sum[kVectors] = {};
  const std::int64_t bytes = (kFull * kLanes<T> + (kTail ? rest : 0)) * static_cast<std::int64_t>(sizeof(X));
  for (std::int64_t e = begin; e < end; ++e) {
    if (e + kAhead < last) {
      const std::int32_t ahead = a.column[e + kAhead];
      if (!kMasked || has(a.columns, ahead)) {
        const char* p = reinterpret_cast<const char*>(a.x + ahead * a.width + at);
        for (std::int64_t b = 0; b < bytes; b += kLine) __builtin_prefetch(p + b, 0, 3);
      }
    }
    const std::int32_t c = a.column[e];
    if (kMasked && !has(a.columns, c)) continue;
    const X* x = a.x + c * a.width + at;
    const Vec<T> value = splat(a.values[e]);
#pragma GCC unroll 8
    for (int v = 0; v < kFull; ++v) sum[v] = fma(value, read(x + v * kLanes<T>), sum[v]);
    if constexpr (kTail) sum[kFull] = fma(value, read_part(x + kFull * kLanes<T>, lanes, rest), sum[kFull]);
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

template <class T, class X, bool kMasked>
void rows_of(const SpmmArguments<T, X>& a, const RowSet& rows, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kBlock = 4 * kLanes<T>;
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::int64_t r = rows[i], begin = a.indptr[r], end = a.indptr[r + 1];
    // Across the row's end, when the next row of the set is the next of the matrix.
    const std::int64_t last = i + 1 < first + count && rows[i + 1] == r + 1 ? a.indptr[r + 2] : end;
    T* y = a.y + r * a.width;
    std::int64_t at = 0;
    for (; at + kBlock <= a.width; at += kBlock) row_block<T, X, 4, false, kMasked>(a, begin, end, last, y, at, 0);
    const std::int64_t left = a.width - at;
    if (left == 0) continue;
    const std::int64_t vectors = (left + kLanes<T> - 1) / kLanes<T>, rest = left - (vectors - 1) * kLanes<T>;
    const bool whole = rest == kLanes<T>;
    switch (vectors) {
      case 1:
        whole ? row_block<T, X, 1, false, kMasked>(a, begin, end, last, y, at, 0)
              : row_block<T, X, 1, true, kMasked>(a, begin, end, last, y, at, rest);
        break;
      case 2:
        whole ? row_block<T, X, 2, false, kMasked>(a, begin, end, last, y, at, 0)
              : row_block<T, X, 2, true, kMasked>(a, begin, end, last, y, at, rest);
        break;
      case 3:
        whole ? row_block<T, X, 3, false, kMasked>(a, begin, end, last, y, at, 0)
              : row_block<T, X, 3, true, kMasked>(a, begin, end, last, y, at, rest);
        break;
      default:
        row_block<T, X, 4, true, kMasked>(a, begin, end, last, y, at, rest);
    }
  }
}

template <class T, class X>
void spmm(const SpmmArguments<T, X>& a, const RowSet& rows, std::int64_t first, std::int64_t count) {
  a.columns != nullptr ? rows_of<T, X, true>(a, rows, first, count) : rows_of<T, X, false>(a, rows, first, count);
}

}  // namespace

template <class Arguments>
SpmmKernel<Arguments> spmm_kernel() {
  return spmm;
}
template SpmmKernel<SpmmArguments<float, float>> spmm_kernel();
template SpmmKernel<SpmmArguments<double, double>> spmm_kernel();
template SpmmKernel<SpmmArguments<float, bf16>> spmm_kernel();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
