#pragma once
// Vectors of the instruction set that this translation unit is compiled for. Everything is in that set's namespace and
// avoids functions of the standard library, which the linker might merge with another unit's copy.
#include <cstdint>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

#if defined(LOCKSTEP_ISA_avx512)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(LOCKSTEP_ISA_avx2)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(LOCKSTEP_ISA_asimd)
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
/// The signed integer type with the size of T.
template <class T>
using IntOf = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

template <class T>
LOCKSTEP_INLINE Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename VecOf<T>::unaligned*>(p);
}
template <class T>
LOCKSTEP_INLINE void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename VecOf<T>::unaligned*>(p) = v;
}
template <class T>
LOCKSTEP_INLINE Vec<T> splat(T value) {
  return value - Vec<T>{};
}

/// The first n lanes of a vector, 0 < n <= kLanes.
template <class T>
struct Lanes {
#if defined(LOCKSTEP_ISA_avx512)
  std::conditional_t<sizeof(T) == 4, __mmask16, __mmask8> mask;
  explicit Lanes(std::int64_t n) : mask(static_cast<decltype(mask)>((1u << n) - 1u)) {}
#elif defined(LOCKSTEP_ISA_avx2)
  __m256i mask;
  int count;
  explicit Lanes(std::int64_t n) : count(static_cast<int>(n)) {
    using I = IntOf<T>;
    Vec<I> index;
    for (int i = 0; i < kLanes<T>; ++i) index[i] = i;
    mask = reinterpret_cast<__m256i>(index < splat<I>(static_cast<I>(n)));
  }
#else
  std::int64_t count;
  explicit Lanes(std::int64_t n) : count(n) {}
#endif
};

/// Other lanes are read as 0 and their memory is not accessed.
LOCKSTEP_INLINE Vec<float> load(const float* p, Lanes<float> lanes) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<float>)_mm512_maskz_loadu_ps(lanes.mask, p);
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<float>)_mm256_maskload_ps(p, lanes.mask);
#else
  if (lanes.count == kLanes<float>) return load(p);
  Vec<float> v{};
  for (std::int64_t i = 0; i < lanes.count; ++i) v[i] = p[i];
  return v;
#endif
}
LOCKSTEP_INLINE Vec<double> load(const double* p, Lanes<double> lanes) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<double>)_mm512_maskz_loadu_pd(lanes.mask, p);
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<double>)_mm256_maskload_pd(p, lanes.mask);
#else
  if (lanes.count == kLanes<double>) return load(p);
  Vec<double> v{};
  for (std::int64_t i = 0; i < lanes.count; ++i) v[i] = p[i];
  return v;
#endif
}
/// The memory of other lanes is not accessed.
LOCKSTEP_INLINE void store(float* p, Vec<float> v, Lanes<float> lanes) {
#if defined(LOCKSTEP_ISA_avx512)
  _mm512_mask_storeu_ps(p, lanes.mask, (__m512)v);
#elif defined(LOCKSTEP_ISA_avx2)
  // As stores of 4, 2 and 1 lanes: a masked store takes dozens of operations on AMD processors.
  if (lanes.count == kLanes<float>) return store(p, v);
  __m128 rest = _mm256_castps256_ps128((__m256)v);
  if (lanes.count & 4) {
    _mm_storeu_ps(p, rest);
    rest = _mm256_extractf128_ps((__m256)v, 1);
    p += 4;
  }
  if (lanes.count & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
    rest = _mm_movehl_ps(rest, rest);
    p += 2;
  }
  if (lanes.count & 1) _mm_store_ss(p, rest);
#else
  if (lanes.count == kLanes<float>) return store(p, v);
  for (std::int64_t i = 0; i < lanes.count; ++i) p[i] = v[i];
#endif
}
LOCKSTEP_INLINE void store(double* p, Vec<double> v, Lanes<double> lanes) {
#if defined(LOCKSTEP_ISA_avx512)
  _mm512_mask_storeu_pd(p, lanes.mask, (__m512d)v);
#elif defined(LOCKSTEP_ISA_avx2)
  if (lanes.count == kLanes<double>) return store(p, v);
  __m128d rest = _mm256_castpd256_pd128((__m256d)v);
  if (lanes.count & 2) {
    _mm_storeu_pd(p, rest);
    rest = _mm256_extractf128_pd((__m256d)v, 1);
    p += 2;
  }
  if (lanes.count & 1) _mm_store_sd(p, rest);
#else
  if (lanes.count == kLanes<double>) return store(p, v);
  for (std::int64_t i = 0; i < lanes.count; ++i) p[i] = v[i];
#endif
}

/// The lanes of the vector at element i of n.
template <class T>
LOCKSTEP_INLINE Lanes<T> lanes_at(std::int64_t i, std::int64_t n) {
  return Lanes<T>(n - i < kLanes<T> ? n - i : kLanes<T>);
}
/// Calls f(offset, lanes) for each vector of n elements; the last one may be partial.
template <class T, class F>
LOCKSTEP_INLINE void each_vector(std::int64_t n, const F& f) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) f(i, Lanes<T>(kLanes<T>));
  if (i < n) f(i, Lanes<T>(n - i));
}

/// Calls f(get, put) for each vector of n elements: get(p) loads that of an array, put(p, v) stores it. Only the last
/// vector, which may be partial, uses masks.
template <class T, class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t n, const F& f) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t i = 0;
  for (; i + kL <= n; i += kL) f([i](const T* p) { return load(p + i); }, [i](T* p, Vec<T> v) { store(p + i, v); });
  if (i == n) return;
  const Lanes<T> lanes(n - i);
  f([i, lanes](const T* p) { return load(p + i, lanes); }, [i, lanes](T* p, Vec<T> v) { store(p + i, v, lanes); });
}

/// The first n lanes of v, with `other` in the rest.
template <class T>
LOCKSTEP_INLINE Vec<T> first_lanes(Vec<T> v, std::int64_t n, T other) {
  Vec<IntOf<T>> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  return lane < splat(static_cast<IntOf<T>>(n < kLanes<T> ? n : kLanes<T>)) ? v : splat(other);
}

/// All ones in lane i if bit i is set, else 0.
template <class T>
LOCKSTEP_INLINE Vec<IntOf<T>> lanes_set(std::uint32_t bits) {
  Vec<IntOf<T>> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = IntOf<T>{1} << i;
  return (splat<IntOf<T>>(static_cast<IntOf<T>>(bits)) & lane) == lane;
}

/// a b + c, rounded once if the instruction set has a fused multiply-add.
LOCKSTEP_INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(LOCKSTEP_ISA_asimd)
  return (Vec<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
LOCKSTEP_INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(LOCKSTEP_ISA_asimd)
  return (Vec<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
  return a * b + c;
#endif
}

/// a b + c in the lanes whose bit is set, c in the others.
LOCKSTEP_INLINE Vec<float> fma_where(std::uint32_t bits, Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<float>)_mm512_mask3_fmadd_ps((__m512)a, (__m512)b, (__m512)c, static_cast<__mmask16>(bits));
#else
  return lanes_set<float>(bits) ? fma(a, b, c) : c;
#endif
}
LOCKSTEP_INLINE Vec<double> fma_where(std::uint32_t bits, Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<double>)_mm512_mask3_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c, static_cast<__mmask8>(bits));
#else
  return lanes_set<double>(bits) ? fma(a, b, c) : c;
#endif
}

/// For floating-point vectors. Returns the second argument if either is NaN. Intrinsics, because GCC compiles a
/// comparison and a choice to two instructions (masked intrinsics, because GCC 12 warns about the plain ones).
template <class V>
LOCKSTEP_INLINE V min(V a, V b) {
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (sizeof(a[0]) == 4) return (V)_mm512_maskz_min_ps(0xffff, (__m512)a, (__m512)b);
  return (V)_mm512_maskz_min_pd(0xff, (__m512d)a, (__m512d)b);
#elif defined(LOCKSTEP_ISA_avx2)
  if constexpr (sizeof(a[0]) == 4) return (V)_mm256_min_ps((__m256)a, (__m256)b);
  return (V)_mm256_min_pd((__m256d)a, (__m256d)b);
#else
  return a < b ? a : b;
#endif
}
template <class V>
LOCKSTEP_INLINE V max(V a, V b) {
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (sizeof(a[0]) == 4) return (V)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
  return (V)_mm512_maskz_max_pd(0xff, (__m512d)a, (__m512d)b);
#elif defined(LOCKSTEP_ISA_avx2)
  if constexpr (sizeof(a[0]) == 4) return (V)_mm256_max_ps((__m256)a, (__m256)b);
  return (V)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
  return a > b ? a : b;
#endif
}
LOCKSTEP_INLINE Vec<float> abs(Vec<float> v) { return (Vec<float>)((Vec<std::int32_t>)v & 0x7fffffff); }
LOCKSTEP_INLINE Vec<double> abs(Vec<double> v) { return (Vec<double>)((Vec<std::int64_t>)v & 0x7fffffffffffffff); }
/// The square root, correctly rounded.
LOCKSTEP_INLINE float root(float x) { return __builtin_sqrtf(x); }
LOCKSTEP_INLINE double root(double x) { return __builtin_sqrt(x); }
/// The square root of each lane, correctly rounded.
LOCKSTEP_INLINE Vec<float> sqrt(Vec<float> v) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<float>)_mm512_maskz_sqrt_ps(0xffff, (__m512)v);
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<float>)_mm256_sqrt_ps((__m256)v);
#elif defined(LOCKSTEP_ISA_asimd)
  return (Vec<float>)vsqrtq_f32((float32x4_t)v);
#else
  for (int i = 0; i < kLanes<float>; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}
LOCKSTEP_INLINE Vec<double> sqrt(Vec<double> v) {
#if defined(LOCKSTEP_ISA_avx512)
  return (Vec<double>)_mm512_maskz_sqrt_pd(0xff, (__m512d)v);
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<double>)_mm256_sqrt_pd((__m256d)v);
#elif defined(LOCKSTEP_ISA_asimd)
  return (Vec<double>)vsqrtq_f64((float64x2_t)v);
#else
  for (int i = 0; i < kLanes<double>; ++i) v[i] = __builtin_sqrt(v[i]);
  return v;
#endif
}
/// Whether any lane of the result of a comparison is set.
template <class V>
LOCKSTEP_INLINE bool any(V mask) {
#if defined(LOCKSTEP_ISA_avx512)
  return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(LOCKSTEP_ISA_avx2)
  return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(LOCKSTEP_ISA_asimd)
  return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
  bool found = false;
  for (std::size_t i = 0; i < sizeof(V) / sizeof(mask[0]); ++i) found |= mask[i] != 0;
  return found;
#endif
}
/// The size of a with the sign of b, for a >= 0.
LOCKSTEP_INLINE Vec<float> with_sign(Vec<float> a, Vec<float> b) {
  return (Vec<float>)((Vec<std::int32_t>)a | ((Vec<std::int32_t>)b & ~0x7fffffff));
}
LOCKSTEP_INLINE Vec<double> with_sign(Vec<double> a, Vec<double> b) {
  return (Vec<double>)((Vec<std::int64_t>)a | ((Vec<std::int64_t>)b & ~0x7fffffffffffffff));
}

/// Splits two vectors a and b into blocks of kBlock lanes and returns the even blocks of both, a0 b0 a2 b2 ..., or the
/// odd ones, a1 b1 a3 b3 ...
template <int kBlock, int kOdd, class T>
LOCKSTEP_INLINE Vec<T> interleave(Vec<T> a, Vec<T> b) {
  Vec<IntOf<T>> from;
  for (int i = 0; i < kLanes<T>; ++i) {
    const int source = (i & ~kBlock) | (kOdd ? kBlock : 0);
    from[i] = (i & kBlock) ? source + kLanes<T> : source;
  }
  return __builtin_shuffle(a, b, from);
}

template <int kBlock, class T>
LOCKSTEP_INLINE void transpose_stages(Vec<T> (&v)[kLanes<T>]) {
  if constexpr (kBlock < kLanes<T>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) {
      if (i & kBlock) continue;
      const Vec<T> a = v[i], b = v[i + kBlock];
      v[i] = interleave<kBlock, 0, T>(a, b);
      v[i + kBlock] = interleave<kBlock, 1, T>(a, b);
    }
    transpose_stages<2 * kBlock, T>(v);
  }
}
#if defined(LOCKSTEP_ISA_avx512)
/// Transposes 16 by 16 with single-operation shuffles: pairs and quadruples within 128-bit lanes, then whole lanes.
LOCKSTEP_INLINE void transpose_16(Vec<float> (&v)[16]) {
  using I = Vec<std::int32_t>;
  constexpr I kLow1 = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}, kHigh1 = kLow1 + 2;
  constexpr I kLow2 = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29}, kHigh2 = kLow2 + 2;
  constexpr I kEven4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27}, kOdd4 = kEven4 + 4;
  Vec<float> quads[16];
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    const Vec<float> low01 = __builtin_shuffle(v[g], v[g + 1], kLow1),
                     high01 = __builtin_shuffle(v[g], v[g + 1], kHigh1);
    const Vec<float> low23 = __builtin_shuffle(v[g + 2], v[g + 3], kLow1),
                     high23 = __builtin_shuffle(v[g + 2], v[g + 3], kHigh1);
    quads[g] = __builtin_shuffle(low01, low23, kLow2);
    quads[g + 1] = __builtin_shuffle(low01, low23, kHigh2);
    quads[g + 2] = __builtin_shuffle(high01, high23, kLow2);
    quads[g + 3] = __builtin_shuffle(high01, high23, kHigh2);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const Vec<float> even01 = __builtin_shuffle(quads[c], quads[c + 4], kEven4),
                     odd01 = __builtin_shuffle(quads[c], quads[c + 4], kOdd4);
    const Vec<float> even23 = __builtin_shuffle(quads[c + 8], quads[c + 12], kEven4),
                     odd23 = __builtin_shuffle(quads[c + 8], quads[c + 12], kOdd4);
    v[c] = __builtin_shuffle(even01, even23, kEven4);
    v[c + 4] = __builtin_shuffle(odd01, odd23, kEven4);
    v[c + 8] = __builtin_shuffle(even01, even23, kOdd4);
    v[c + 12] = __builtin_shuffle(odd01, odd23, kOdd4);
  }
}
#endif
/// Transposes: v[i][j] <-> v[j][i].
template <class T>
LOCKSTEP_INLINE void transpose(Vec<T> (&v)[kLanes<T>]) {
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (sizeof(T) == 4) {
    transpose_16(v);
    return;
  }
#endif
  transpose_stages<1, T>(v);
}

template <int kCount, int kBlock, class T>
LOCKSTEP_INLINE Vec<T> sum_of_stages(Vec<T>* v) {
  if constexpr (kBlock < kCount) {
#pragma GCC unroll 16
    for (int i = 0; i < kCount; i += 2 * kBlock)
      v[i] = interleave<kBlock, 0, T>(v[i], v[i + kBlock]) + interleave<kBlock, 1, T>(v[i], v[i + kBlock]);
    return sum_of_stages<kCount, 2 * kBlock, T>(v);
  } else if constexpr (kBlock < kLanes<T>) {
    Vec<IntOf<T>> from;
    for (int i = 0; i < kLanes<T>; ++i) from[i] = i ^ kBlock;
    v[0] += __builtin_shuffle(v[0], from);
    return sum_of_stages<kCount, 2 * kBlock, T>(v);
  } else {
    return v[0];
  }
}
/// Lane i < kCount of the result is the sum of v[i]'s lanes, added in a fixed tree. kCount is a power of two up to
/// kLanes. v is overwritten.
template <int kCount, class T>
LOCKSTEP_INLINE Vec<T> sum_of(Vec<T>* v) {
  return sum_of_stages<kCount, 1, T>(v);
}

template <int kBlock, class T>
LOCKSTEP_INLINE Vec<T> fold_largest(Vec<T> v) {
  if constexpr (kBlock == 0) {
    return v;
  } else {
    Vec<IntOf<T>> from;
    for (int i = 0; i < kLanes<T>; ++i) from[i] = i ^ kBlock;
    return fold_largest<kBlock / 2, T>(max(v, (Vec<T>)__builtin_shuffle(v, from)));
  }
}
/// The largest lane; NaNs may be skipped.
template <class T>
LOCKSTEP_INLINE T largest_lane(Vec<T> v) {
  return fold_largest<kLanes<T> / 2, T>(v)[0];
}

template <int kBlock, class T>
LOCKSTEP_INLINE Vec<T> fold(Vec<T> v) {
  if constexpr (kBlock == 0) {
    return v;
  } else {
    Vec<IntOf<T>> from;
    for (int i = 0; i < kLanes<T>; ++i) from[i] = i ^ kBlock;
    return fold<kBlock / 2, T>(v + __builtin_shuffle(v, from));
  }
}
/// The sum of a vector's lanes, added in a fixed tree.
template <class T>
LOCKSTEP_INLINE T total(Vec<T> v) {
  return fold<kLanes<T> / 2, T>(v)[0];
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
