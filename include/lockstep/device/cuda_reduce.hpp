#pragma once
#include "lockstep/device/cuda_launch.hpp"

/// Sums and maxima over the threads of a warp or block. The order is fixed, so results repeat bit for bit.
namespace lockstep::gpu {

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Reduces over a warp; every lane receives the result. All 32 lanes must call it.
template <class T, class Op = Add>
__device__ T warp_reduce(T value, Op op = {}) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = op(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

/// Reduces over a one-dimensional block of whole warps; every thread receives the result. All threads must call it.
/// `zero` is the neutral element of `op`.
template <class T, class Op = Add>
__device__ T block_reduce(T value, T zero = {}, Op op = {}) {
  __shared__ T sm_warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_reduce(value, op);
  __syncthreads();  // all warps have read the previous call's results
  if (lane == 0) sm_warps[warp] = value;
  __syncthreads();
  value = lane < warps ? sm_warps[lane] : zero;
  return warp_reduce(value, op);
}

}  // namespace lockstep::gpu
