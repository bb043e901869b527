#pragma once
// The Sinkhorn-Knopp iteration of one thread; sinkhorn.hpp is the same on vectors of the CPU.
#include <cstdint>

#include "lockstep/ops/hyper_connections.hpp"

namespace lockstep::ops::cuda {

/// A token's matrix, divided alternately by its column sums and its row sums. kN is the extent if known at compile
/// time, so that the matrix stays in registers; 0 means n. T: real.
template <class T, int kN>
struct Sinkhorn {
  static constexpr int kExtent = kN > 0 ? kN : static_cast<int>(HyperConnection::kMostStreams);
  static constexpr int kUnroll = kN > 0 ? kN : 1;
  T m[kExtent][kExtent];

  /// Stores the sums unless `sums` is null, `apart` elements apart.
  template <bool kByColumns>
  __device__ void divide(int n, T* sums, std::int64_t apart) {
#pragma unroll kUnroll
    for (int a = 0; a < n; ++a) {
      T sum = 0;
#pragma unroll kUnroll
      for (int b = 0; b < n; ++b) sum += kByColumns ? m[b][a] : m[a][b];
      const T inverse = 1 / sum;
      if (sums != nullptr) sums[a * apart] = sum;
#pragma unroll kUnroll
      for (int b = 0; b < n; ++b) (kByColumns ? m[b][a] : m[a][b]) *= inverse;
    }
  }
  /// Undoes a division in the matrix and in its gradient: A = M s, dA = (dM - sum(dM M)) / s.
  template <bool kByColumns>
  __device__ void undo(int n, Sinkhorn& gradient, const T* sums, std::int64_t apart) {
#pragma unroll kUnroll
    for (int a = 0; a < n; ++a) {
      T product = 0;
#pragma unroll kUnroll
      for (int b = 0; b < n; ++b)
        product += (kByColumns ? m[b][a] : m[a][b]) * (kByColumns ? gradient.m[b][a] : gradient.m[a][b]);
      const T sum = sums[a * apart], inverse = 1 / sum;
#pragma unroll kUnroll
      for (int b = 0; b < n; ++b) {
        T& g = kByColumns ? gradient.m[b][a] : gradient.m[a][b];
        g = (g - product) * inverse;
        (kByColumns ? m[b][a] : m[a][b]) *= sum;
      }
    }
  }
};

}  // namespace lockstep::ops::cuda
