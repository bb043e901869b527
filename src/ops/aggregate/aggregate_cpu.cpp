#include "aggregate_kernels.hpp"
#include "ops/common/philox_simd.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Prefetch distance in rows. The rows of a chunk come from memory: without prefetches, half of a kernel's time is
/// spent waiting for them.
constexpr std::int64_t kPrefetch = 8, kLine = 64;

/// Prefetches the row of a table that is needed kPrefetch rows after row i.
template <class T>
LOCKSTEP_INLINE void prefetch(const RowSet& rows, std::int64_t i, const T* table, std::int64_t width) {
  if (i + kPrefetch >= rows.size()) return;
  const char* row = reinterpret_cast<const char*>(table + rows[i + kPrefetch] * width);
  for (std::int64_t b = 0; b < width * static_cast<std::int64_t>(sizeof(T)); b += kLine) __builtin_prefetch(row + b);
}

template <class T>
void combine(Aggregator kind, const RowSet& rows, std::int64_t in, T* __restrict__ a, T* __restrict__ b,
             const T* __restrict__ x, const T* __restrict__ s) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const T *xi = x + rows[i] * in, *si = s + rows[i] * in;
    prefetch(rows, i, x, in);
    prefetch(rows, i, s, in);
    switch (kind) {
      case Aggregator::bi_interaction:
        for (std::int64_t c = 0; c < in; ++c) a[i * in + c] = xi[c] + si[c];
        for (std::int64_t c = 0; c < in; ++c) b[i * in + c] = xi[c] * si[c];
        break;
      case Aggregator::gcn:
        for (std::int64_t c = 0; c < in; ++c) a[i * in + c] = xi[c] + si[c];
        break;
      case Aggregator::graphsage:
        for (std::int64_t c = 0; c < in; ++c) a[2 * i * in + c] = xi[c];
        for (std::int64_t c = 0; c < in; ++c) a[(2 * i + 1) * in + c] = si[c];
        break;
    }
  }
}

void draw(const PhiloxKey& key, std::int64_t groups, std::uint32_t* words) {
  for (std::int64_t g = 0; g < groups; ++g) philox_group(key, static_cast<std::uint64_t>(g), words + g * kGroupWords);
}

/// A vector of U with as many elements as a vector of T.
template <class U, int kCount>
struct NarrowOf {
  typedef U type __attribute__((vector_size(kCount * sizeof(U))));
  typedef U unaligned __attribute__((vector_size(kCount * sizeof(U)), aligned(alignof(U)), may_alias));
};

/// Loads `count` elements of U into the lanes of a vector. `count` is below the number of lanes only at the end of a
/// row.
template <class T, class U>
LOCKSTEP_INLINE Vec<IntOf<T>> widened(const U* p, std::int64_t count) {
  using Narrow = typename NarrowOf<U, kLanes<T>>::unaligned;
  if (count == kLanes<T>) {
#if defined(LOCKSTEP_ISA_avx512)
    // GCC 12 converts a vector of bytes element by element, and warns about the intrinsic without a mask.
    if constexpr (std::is_same_v<T, float> && sizeof(U) == 1)
      return (Vec<IntOf<T>>)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(LOCKSTEP_ISA_avx2)
    if constexpr (std::is_same_v<T, float> && sizeof(U) == 1)
      return (Vec<IntOf<T>>)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#endif
    return __builtin_convertvector(*reinterpret_cast<const Narrow*>(p), Vec<IntOf<T>>);
  }
  Vec<IntOf<T>> v{};
  for (std::int64_t i = 0; i < count; ++i) v[i] = static_cast<IntOf<T>>(p[i]);
  return v;
}
template <class T>
LOCKSTEP_INLINE void store_bytes(std::uint8_t* p, Vec<IntOf<T>> v, std::int64_t count) {
  using Narrow = NarrowOf<std::uint8_t, kLanes<T>>;
  const auto bytes = __builtin_convertvector(v, typename Narrow::type);
  if (count == kLanes<T>) {
    *reinterpret_cast<typename Narrow::unaligned*>(p) = bytes;
  } else {
    for (std::int64_t i = 0; i < count; ++i) p[i] = bytes[i];
  }
}
template <class T>
LOCKSTEP_INLINE Vec<T> load_first(const T* p, std::int64_t count) {
  return count == kLanes<T> ? load(p) : load(p, Lanes<T>(count));
}
template <class T>
LOCKSTEP_INLINE void store_first(T* p, Vec<T> v, std::int64_t count) {
  count == kLanes<T> ? store(p, v) : store(p, v, Lanes<T>(count));
}
/// Calls f(column, columns) for each vector of a row; only the last one may be partial.
template <class T, class F>
LOCKSTEP_INLINE void in_vectors(std::int64_t width, const F& f) {
  std::int64_t c = 0;
  for (; c + kLanes<T> <= width; c += kLanes<T>) f(c, std::int64_t{kLanes<T>});
  if (c < width) f(c, width - c);
}

template <class T>
void activate(const RowSet& rows, std::int64_t width, T* __restrict__ out, std::uint8_t* __restrict__ marks,
              const T* __restrict__ z1, const T* __restrict__ bias1, const T* __restrict__ z2,
              const T* __restrict__ bias2, T slope, const std::uint16_t* __restrict__ draws, std::int64_t stride,
              std::int32_t threshold, T scale) {
  using I = Vec<IntOf<T>>;
  const Vec<T> zero{}, factor = splat(scale), below = splat(slope);
  const I limit = splat<IntOf<T>>(threshold), first = splat<IntOf<T>>(kFirst), second = splat<IntOf<T>>(kSecond),
          kept = splat<IntOf<T>>(kKept);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const std::int64_t to = rows[i] * width, from = i * width;
    in_vectors<T>(
        width, [&](std::int64_t c, std::int64_t count) __attribute__((always_inline)) {
          const Vec<T> p = load_first(z1 + from + c, count) + load_first(bias1 + c, count);
          Vec<T> o = p > zero ? p : p * below;
          I mark = kept | (first & (p > zero));
          if (z2 != nullptr) {
            const Vec<T> q = load_first(z2 + from + c, count) + load_first(bias2 + c, count);
            o += q > zero ? q : q * below;
            mark |= second & (q > zero);
          }
          if (draws != nullptr) {
            const I keep = widened<T>(draws + i * stride + c, count) >= limit;
            o = keep ? o * factor : zero;
            mark &= keep;
          }
          store_first(out + to + c, o, count);
          if (marks != nullptr) store_bytes<T>(marks + to + c, mark, count);
        });
  }
}

template <class T>
void derive(const RowSet& rows, std::int64_t width, T* __restrict__ d1, T* __restrict__ d2, T* __restrict__ dbias1,
            T* __restrict__ dbias2, const T* __restrict__ dout, const std::uint8_t* __restrict__ marks, T slope,
            T scale) {
  using I = Vec<IntOf<T>>;
  const Vec<T> zero{}, factor = splat(scale), below = splat(slope);
  const I none{}, first = splat<IntOf<T>>(kFirst), second = splat<IntOf<T>>(kSecond), kept = splat<IntOf<T>>(kKept);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const std::int64_t from = rows[i] * width, to = i * width;
    prefetch(rows, i, dout, width);
    prefetch(rows, i, marks, width);
    in_vectors<T>(
        width, [&](std::int64_t c, std::int64_t count) __attribute__((always_inline)) {
          const I mark = widened<T>(marks + from + c, count);
          const Vec<T> g = (mark & kept) != none ? load_first(dout + from + c, count) * factor : zero;
          const Vec<T> p = (mark & first) != none ? g : g * below;
          store_first(d1 + to + c, p, count);
          store_first(dbias1 + c, load_first(dbias1 + c, count) + p, count);
          if (d2 == nullptr) return;
          const Vec<T> q = (mark & second) != none ? g : g * below;
          store_first(d2 + to + c, q, count);
          store_first(dbias2 + c, load_first(dbias2 + c, count) + q, count);
        });
  }
}

template <class T>
void split(Aggregator kind, const RowSet& rows, std::int64_t in, T* __restrict__ dx, T* __restrict__ ds,
           const T* __restrict__ da, const T* __restrict__ db, const T* __restrict__ x, const T* __restrict__ s) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = rows[i] * in;
    switch (kind) {
      case Aggregator::bi_interaction:
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = da[i * in + c] + db[i * in + c] * x[at + c];
        for (std::int64_t c = 0; c < in; ++c) dx[at + c] = da[i * in + c] + db[i * in + c] * s[at + c];
        break;
      case Aggregator::gcn:
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = dx[at + c] = da[i * in + c];
        break;
      case Aggregator::graphsage:
        for (std::int64_t c = 0; c < in; ++c) dx[at + c] = da[2 * i * in + c];
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = da[(2 * i + 1) * in + c];
        break;
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(AggregateKernels, aggregate_kernels, combine<T>, draw, activate<T>, derive<T>, split<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
