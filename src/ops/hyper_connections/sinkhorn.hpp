#pragma once
// The Sinkhorn-Knopp iteration on vectors; sinkhorn_cuda.hpp is the same for a GPU.
#include "lockstep/ops/hyper_connections.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

/// One matrix for each of kLanes tokens, divided alternately by its column sums and its row sums. kN is the extent if
/// known at compile time, so that the matrix stays in registers; 0 means n.
template <class T, int kN>
struct Sinkhorn {
  static constexpr int kMost = kN > 0 ? kN : static_cast<int>(HyperConnection::kMostStreams);
  Vec<T> m[kMost][kMost];

  template <bool kColumns>
  LOCKSTEP_INLINE void divide(int n, Vec<T>* sums) {
#pragma GCC unroll 4
    for (int a = 0; a < n; ++a) {
      Vec<T> sum{};
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b) sum += kColumns ? m[b][a] : m[a][b];
      const Vec<T> inverse = splat(T{1}) / sum;
      if (sums) sums[a] = sum;
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b) (kColumns ? m[b][a] : m[a][b]) *= inverse;
    }
  }
  /// Goes back from after a division to before it, for the matrix and its gradient: A = M s, dA = (dM - sum(dM M)) / s.
  template <bool kColumns>
  LOCKSTEP_INLINE void undo(int n, Sinkhorn& gradient, const Vec<T>* sums) {
#pragma GCC unroll 4
    for (int a = 0; a < n; ++a) {
      Vec<T> product{};
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b)
        product = fma(kColumns ? m[b][a] : m[a][b], kColumns ? gradient.m[b][a] : gradient.m[a][b], product);
      const Vec<T> inverse = splat(T{1}) / sums[a];
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b) {
        Vec<T>& g = kColumns ? gradient.m[b][a] : gradient.m[a][b];
        g = (g - product) * inverse;
        (kColumns ? m[b][a] : m[a][b]) *= sums[a];
      }
    }
  }
};

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
