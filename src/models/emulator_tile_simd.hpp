#pragma once
// Vectors and activations of the emulator's tile kernels; included by emulator_tile_cpu.cpp only, once per instruction set.
#include <cstdint>

#include "lockstep/ops/activation.hpp"

extern "C" {
double exp(double) noexcept(true);
double expm1(double) noexcept(true);
double erf(double) noexcept(true);
double tanh(double) noexcept(true);
}

namespace lockstep::emulator_tile::LOCKSTEP_ISA {
namespace {

#if defined(LOCKSTEP_ISA_avx512)
constexpr int kVectorBytes = 64, kVectors = 3, kRows = 8;  // 24 sums, 3 inputs and a weight in 32 registers
#elif defined(LOCKSTEP_ISA_avx2)
constexpr int kVectorBytes = 32, kVectors = 3, kRows = 4;  // 12 sums, 3 inputs and a weight in 16 registers
#else
constexpr int kVectorBytes = 16, kVectors = 2, kRows = 4;
#endif

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(kVectorBytes), may_alias));
  typedef float U __attribute__((vector_size(kVectorBytes), may_alias, aligned(4)));
  typedef std::int32_t I __attribute__((vector_size(kVectorBytes), may_alias));
};
template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(kVectorBytes), may_alias));
  typedef double U __attribute__((vector_size(kVectorBytes), may_alias, aligned(8)));
  typedef std::int64_t I __attribute__((vector_size(kVectorBytes), may_alias));
};
template <class T>
using Vec = typename Lanes<T>::V;
template <class T>
constexpr int kLanes = kVectorBytes / int{sizeof(T)};
template <class T>
constexpr int kNodes = kVectors* kLanes<T>;

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const Vec<T>*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<Vec<T>*>(p) = v;
}
template <class T>
inline Vec<T> load_unaligned(const T* p) {
  return *reinterpret_cast<const typename Lanes<T>::U*>(p);
}
template <class T>
inline void store_unaligned(T* p, Vec<T> v) {
  *reinterpret_cast<typename Lanes<T>::U*>(p) = v;
}

#if defined(LOCKSTEP_ISA_avx512)
inline Vec<float> all(float x) { return (Vec<float>)_mm512_set1_ps(x); }
inline Vec<double> all(double x) { return (Vec<double>)_mm512_set1_pd(x); }
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
  return (Vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
  return (Vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
inline Vec<float> larger(Vec<float> a, Vec<float> b) {
  return (Vec<float>)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b);
}
/// 1/x within 1 ulp or so for ordinary x: the processor's estimate of 14 bits and one Newton step.
inline Vec<float> reciprocal(Vec<float> x) {
  const Vec<float> r = (Vec<float>)_mm512_maskz_rcp14_ps(0xFFFF, (__m512)x);
  return fma(r, fma(-x, r, all(1.0f)), r);
}
#elif defined(LOCKSTEP_ISA_avx2)
inline Vec<float> all(float x) { return (Vec<float>)_mm256_set1_ps(x); }
inline Vec<double> all(double x) { return (Vec<double>)_mm256_set1_pd(x); }
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
  return (Vec<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
  return (Vec<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
inline Vec<float> larger(Vec<float> a, Vec<float> b) { return (Vec<float>)_mm256_max_ps((__m256)a, (__m256)b); }
inline Vec<float> reciprocal(Vec<float> x) { return all(1.0f) / x; }
#else
inline Vec<float> all(float x) { return Vec<float>{x, x, x, x}; }
inline Vec<double> all(double x) { return Vec<double>{x, x}; }
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) { return a * b + c; }
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) { return a * b + c; }
inline Vec<float> larger(Vec<float> a, Vec<float> b) { return a > b ? a : b; }
inline Vec<float> reciprocal(Vec<float> x) { return all(1.0f) / x; }
#endif

/// The first n values at p, zeros behind them; n <= lanes.
template <class T>
inline Vec<T> load_first(const T* p, std::int64_t n) {
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (sizeof(T) == 4)
    return (Vec<T>)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1), p);
  else
    return (Vec<T>)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1U << n) - 1), p);
#else
  if (n == kLanes<T>) return load_unaligned(p);
  Vec<T> v{};
  for (std::int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}
template <class T>
inline void store_first(T* p, Vec<T> v, std::int64_t n) {
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1), (__m512)v);
  else
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1U << n) - 1), (__m512d)v);
#else
  if (n == kLanes<T>) return store_unaligned(p, v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

// --- transposition ----------------------------------------------------------------------------------------------

/// a0 b0 a1 b1 ... of the lower halves, and of the upper ones.
template <class T>
inline void interleave(Vec<T> a, Vec<T> b, Vec<T>& low, Vec<T>& high) {
  using I = typename Lanes<T>::I;
  if constexpr (kLanes<T> == 16) {
    low = __builtin_shuffle(a, b, I{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
    high = __builtin_shuffle(a, b, I{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
  } else if constexpr (kLanes<T> == 8) {
    low = __builtin_shuffle(a, b, I{0, 8, 1, 9, 2, 10, 3, 11});
    high = __builtin_shuffle(a, b, I{4, 12, 5, 13, 6, 14, 7, 15});
  } else if constexpr (kLanes<T> == 4) {
    low = __builtin_shuffle(a, b, I{0, 4, 1, 5});
    high = __builtin_shuffle(a, b, I{2, 6, 3, 7});
  } else {
    low = __builtin_shuffle(a, b, I{0, 2});
    high = __builtin_shuffle(a, b, I{1, 3});
  }
}

/// A square of lanes x lanes, in place: log2(lanes) perfect shuffles of the rows i and i + lanes/2.
template <class T>
[[gnu::always_inline]] inline void transpose(Vec<T>* v) {
  constexpr int L = kLanes<T>;
#pragma GCC unroll 4
  for (int stage = 1; stage < L; stage *= 2) {
    Vec<T> next[L];
#pragma GCC unroll 8
    for (int i = 0; i < L / 2; ++i) interleave<T>(v[i], v[i + L / 2], next[2 * i], next[2 * i + 1]);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) v[i] = next[i];
  }
}

// --- activations ------------------------------------------------------------------------------------------------

inline Vec<float> absolute(Vec<float> x) {
  using I = Lanes<float>::I;
  return (Vec<float>)((I)x & (I{} + 0x7FFFFFFF));
}
/// 2^x for x <= 0, relative error 2e-7 + 6e-8 |x|; not below 2^-126.
inline Vec<float> power_of_2(Vec<float> x) {
  using I = Lanes<float>::I;
  const Vec<float> magic = all(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = larger(x, all(-126.0f));
  const Vec<float> shifted = x + magic;
  const Vec<float> r = x - (shifted - magic);
  Vec<float> p = all(0.001327650339029385f);
  p = fma(p, r, all(0.009675539146877798f));
  p = fma(p, r, all(0.055507130726960625f));
  p = fma(p, r, all(0.2402211976777794f));
  p = fma(p, r, all(0.6931469673685502f));
  p = fma(p, r, all(1.0000000716549844f));
  return (Vec<float>)((I)p + ((I)shifted << 23));
}
/// exp(x) for x <= 0, within 2 ulp; not below exp(-87.3). source  Cephes, expf
inline Vec<float> exponential(Vec<float> x) {
  using I = Lanes<float>::I;
  const Vec<float> magic = all(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = larger(x, all(-87.3f));
  const Vec<float> shifted = fma(x, all(1.44269504f), magic);
  const Vec<float> n = shifted - magic;
  Vec<float> r = fma(n, all(-0.693359375f), x);
  r = fma(n, all(2.12194440e-4f), r);
  Vec<float> p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = fma(p, r * r, r) + all(1.0f);
  return (Vec<float>)((I)p + ((I)shifted << 23));
}
/// exp(x) - 1 for x <= 0: a series near 0, where the difference would cancel.
inline Vec<float> exponential_minus_1(Vec<float> x, Vec<float> e) {
  Vec<float> p = all(1.0f / 5040);
  p = fma(p, x, all(1.0f / 720));
  p = fma(p, x, all(1.0f / 120));
  p = fma(p, x, all(1.0f / 24));
  p = fma(p, x, all(1.0f / 6));
  p = fma(p, x, all(0.5f));
  p = fma(p * x, x, x);
  return x > all(-0.35f) ? p : e - all(1.0f);
}

#if defined(LOCKSTEP_ISA_avx512)
#include "models/emulator_gelu_table.hpp"
#endif

/// Without WithSlope the slope may be left alone.
template <ops::Activation A, bool WithSlope = true>
inline void apply(Vec<float> x, Vec<float>& value, Vec<float>& slope) {
  const Vec<float> one = all(1.0f), zero{};
  using enum ops::Activation;
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (A == gelu) return gelu_by_table<WithSlope>(x, value, slope);
#endif
  if constexpr (A == none) {
    value = x, slope = one;
  } else if constexpr (A == gelu) {
    // Phi(-a) = erfc(a/sqrt 2)/2 = exp(-a^2/2) t P(t), t = 1/(1 + 0.26 a): relative error 2e-8; the slope needs the same exponential.
    const Vec<float> a = absolute(x), e = power_of_2(x * x * all(-0.72134752f));
    const Vec<float> t = reciprocal(fma(a, all(0.26f), one));
    Vec<float> p = all(0.030896085597801014f);
    p = fma(p, t, all(-0.154740171773511f));
    p = fma(p, t, all(0.2554664777589194f));
    p = fma(p, t, all(-0.15553568581858232f));
    p = fma(p, t, all(0.16415226352041468f));
    p = fma(p, t, all(0.049642581740522246f));
    p = fma(p, t, all(0.10339131109658106f));
    p = fma(p, t, all(0.10296493714452598f));
    p = fma(p, t, all(0.10376219056055007f));
    const Vec<float> tail = e * (t * p);
    value = fma(-a, tail, larger(x, zero));
    slope = fma(x * all(0.3989422804014327f), e, x > zero ? one - tail : tail);
  } else if constexpr (A == relu) {
    value = x < zero ? zero : x, slope = x > zero ? one : zero;
  } else if constexpr (A == leaky_relu) {
    value = x > zero ? x : x * all(0.01f), slope = x > zero ? one : all(0.01f);
  } else if constexpr (A == elu) {
    const Vec<float> below = x < zero ? x : zero, e = exponential(below);
    value = x < zero ? exponential_minus_1(below, e) : x, slope = x > zero ? one : e;
  } else {
    // 1/(1 + exp(-|u|)), with u = x, or 2x for tanh u/2 = (1 - exp(-u))/(1 + exp(-u)).
    const Vec<float> a = absolute(x), u = A == tanh ? -(a + a) : -a;
    const Vec<float> e = exponential(u), r = reciprocal(one + e);
    if constexpr (A == tanh) {
      const Vec<float> y = -exponential_minus_1(u, e) * r;
      value = x < zero ? -y : y, slope = all(4.0f) * e * r * r;
    } else {
      const Vec<float> s = x < zero ? e * r : r, rest = x < zero ? r : e * r;
      if constexpr (A == sigmoid)
        value = s, slope = s * rest;
      else
        value = x * s, slope = fma(value, rest, s);
    }
    value = x == x ? value : x;  // the bit arithmetic of exponential() loses NaN
  }
}

/// In double each lane goes through the C library.
template <ops::Activation A>
inline void apply(double x, double& value, double& slope) {
  using enum ops::Activation;
  if constexpr (A == none) {
    value = x, slope = 1;
  } else if constexpr (A == gelu) {
    const double phi = 0.5 * (1 + ::erf(x * 0.70710678118654752440));
    value = x * phi, slope = phi + x * ::exp(-0.5 * x * x) * 0.39894228040143267794;
  } else if constexpr (A == relu) {
    value = x < 0 ? 0 : x, slope = x > 0 ? 1 : 0;
  } else if constexpr (A == leaky_relu) {
    value = x > 0 ? x : 0.01 * x, slope = x > 0 ? 1 : 0.01;
  } else if constexpr (A == elu) {
    value = x > 0 ? x : ::expm1(x), slope = x > 0 ? 1 : ::exp(x);
  } else if constexpr (A == tanh) {
    value = ::tanh(x), slope = 1 - value * value;
  } else {
    const double e = ::exp(x < 0 ? x : -x), r = 1 / (1 + e), s = x < 0 ? e * r : r, rest = x < 0 ? r : e * r;
    if constexpr (A == sigmoid)
      value = s, slope = s * rest;
    else
      value = x * s, slope = s + value * rest;
  }
}

template <class T, ops::Activation A>
void activate(T* values, T* slopes, std::int64_t count) {
  if constexpr (sizeof(T) == 4) {
    Vec<T> value, slope;
    if (slopes)
      for (std::int64_t i = 0; i < count; i += kLanes<T>) {
        apply<A>(load(values + i), value, slope);
        store(values + i, value);
        store(slopes + i, slope);
      }
    else
#pragma GCC unroll 3
      for (std::int64_t i = 0; i < count; i += kLanes<T>) {
        apply<A, false>(load(values + i), value, slope);
        store(values + i, value);
      }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      T value, slope;
      apply<A>(values[i], value, slope);
      values[i] = value;
      if (slopes) slopes[i] = slope;
    }
  }
}

template <class T>
auto activation_of(ops::Activation activation) -> void (*)(T*, T*, std::int64_t) {
  switch (activation) {
    case ops::Activation::none:
      return activate<T, ops::Activation::none>;
    case ops::Activation::gelu:
      return activate<T, ops::Activation::gelu>;
    case ops::Activation::relu:
      return activate<T, ops::Activation::relu>;
    case ops::Activation::tanh:
      return activate<T, ops::Activation::tanh>;
    case ops::Activation::sigmoid:
      return activate<T, ops::Activation::sigmoid>;
    case ops::Activation::leaky_relu:
      return activate<T, ops::Activation::leaky_relu>;
    case ops::Activation::elu:
      return activate<T, ops::Activation::elu>;
    case ops::Activation::silu:
      return activate<T, ops::Activation::silu>;
  }
  return nullptr;
}

}  // namespace
}  // namespace lockstep::emulator_tile::LOCKSTEP_ISA
