#pragma once
// Sums in f64 of products of f32 or f64, over eight interleaved partial sums: the same order for every vector width.
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

inline constexpr int kPartials = 8;
typedef double Partials __attribute__((vector_size(kPartials * sizeof(double))));

/// Elements p[0] .. p[kPartials - 1].
template <class T>
LOCKSTEP_INLINE Partials partials(const T* p) {
  typedef T Eight __attribute__((vector_size(kPartials * sizeof(T)), aligned(alignof(T)), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Eight*>(p), Partials);
}
LOCKSTEP_INLINE double total(Partials s) { return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])); }

/// sum over i < n of a_i b_i
template <class T>
LOCKSTEP_INLINE double dot(std::int64_t n, const T* a, const T* b) {
  Partials sum{};
  std::int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) sum += partials(a + i) * partials(b + i);
  for (; i < n; ++i) sum[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return total(sum);
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
