#pragma once
#include <cstdint>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/rope.hpp"

namespace lockstep::ops::cuda {

/// Rotates a pair: element j of a head's first half and element j of its second half (rope.hpp).
template <class R>
__device__ void rotate(R& a, R& b, R cos, R sin) {
  const R before = a;
  a = before * cos - b * sin;
  b = b * cos + before * sin;
}

/// Loads the columns of a head and rotates them by their position, forward or back.
template <class T>
struct Turned {
  const real_t<T>*cos = nullptr, *sin = nullptr;  ///< (T, half); null: no rotation
  int half = 0;
  __device__ explicit operator bool() const { return cos != nullptr; }
  /// Sets `lower` to N columns of a row from j < half on, and `upper` to those from j + half on.
  template <int N, Rotation kWay = Rotation::forward>
  __device__ void load(gpu::Pack<real_t<T>, N>& lower, gpu::Pack<real_t<T>, N>& upper, const T* row,
                       std::int64_t position, int j) const {
    lower = gpu::load<N>(row + j);
    upper = gpu::load<N>(row + j + half);
    const std::int64_t angle = position * half + j;
    const gpu::Pack<real_t<T>, N> c = gpu::load<N>(cos + angle), s = gpu::load<N>(sin + angle);
#pragma unroll
    for (int k = 0; k < N; ++k)
      rotate(lower.at[k], upper.at[k], c.at[k], kWay == Rotation::forward ? s.at[k] : -s.at[k]);
  }
  /// Rotates `count` rows of shared memory, from position `first` on, back and stores them: gradients with respect to a
  /// head's columns before the rotation. One warp calls it for rows that no other warp uses. Rows from `time` on do not
  /// exist.
  template <int N>
  __device__ void put_back(T* to, std::int64_t stride, const T* sm_rows, int sm_stride, std::int64_t first, int count,
                           std::int64_t time) const {
    const int packs = half / N;
#pragma unroll 2
    for (int e = static_cast<int>(threadIdx.x); e < count * packs; e += gpu::kWarp) {
      const int r = e / packs, c = e % packs * N;
      if (first + r >= time) break;
      gpu::Pack<real_t<T>, N> lower, upper;
      load<N, Rotation::inverse>(lower, upper, sm_rows + r * sm_stride, first + r, c);
      T* const at = to + (first + r) * stride + c;
      gpu::store(at, lower);
      gpu::store(at + half, upper);
    }
  }
};

}  // namespace lockstep::ops::cuda
