#pragma once
#include <cstdint>

#include "lockstep/device/cuda_half.hpp"

namespace lockstep::ops::cuda {

/// Rotates the pair of elements j of a head's halves (rope.hpp).
template <class R>
__device__ void rotate(R& a, R& b, R cos, R sin) {
  const R before = a;
  a = before * cos - b * sin;
  b = b * cos + before * sin;
}

/// Loads of a head's columns with the rotation of their position.
template <class T>
struct Turned {
  const real_t<T>*cos = nullptr, *sin = nullptr;  ///< (T, half); null: no rotation
  int half = 0;
  __device__ explicit operator bool() const { return cos != nullptr; }
  /// Sets `lower` to N columns of a row from j < half on, and `upper` to those from j + half on.
  template <int N>
  __device__ void load(gpu::Pack<real_t<T>, N>& lower, gpu::Pack<real_t<T>, N>& upper, const T* row,
                       std::int64_t position, int j) const {
    lower = gpu::load<N>(row + j);
    upper = gpu::load<N>(row + j + half);
    const std::int64_t angle = position * half + j;
    const gpu::Pack<real_t<T>, N> c = gpu::load<N>(cos + angle), s = gpu::load<N>(sin + angle);
#pragma unroll
    for (int k = 0; k < N; ++k) rotate(lower.at[k], upper.at[k], c.at[k], s.at[k]);
  }
};

}  // namespace lockstep::ops::cuda
