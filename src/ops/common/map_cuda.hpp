#pragma once
#include <cstdint>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"

/// Element-wise passes over memory, several elements per load.
namespace lockstep::gpu {

/// Calls f.template at<N>(i) for each whole pack of elements i .. i + N - 1 and f.template at<1>(i) for the remaining
/// ones. One thread per pack, grid-stride.
template <int N, class F>
__global__ void __launch_bounds__(256) map_kernel(gpu::Earlier earlier, std::int64_t count, F f) {
  earlier.wait();
  const std::int64_t packs = count / N, items = packs + count % N, stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items; item += stride) {
    if (item < packs)
      f.template at<N>(item * N);
    else
      f.template at<1>(packs * N + item - packs);
  }
}

/// Runs f over `count` elements, N at a time if `packed`. Addresses must then be multiples of N elements.
template <int N, class F>
void map(const Stream& stream, std::int64_t count, bool packed, const F& f) {
  if (packed)
    launch(stream, grid_for(ceil_div(count, N)), map_kernel<N, F>, count, f);
  else
    launch(stream, grid_for(count), map_kernel<1, F>, count, f);
}
/// Runs f over `count` elements, 16 bytes of T at a time if `packed`.
template <class T, class F>
void map(const Stream& stream, std::int64_t count, bool packed, const F& f) {
  map<pack_size<T>()>(stream, count, packed, f);
}

/// i mod n, with the faster 32-bit division where possible.
__device__ inline std::int64_t remainder(std::int64_t i, std::int64_t n) {
  return (i | n) >> 32 == 0 ? static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(n) : i % n;
}
__device__ inline std::int64_t quotient(std::int64_t i, std::int64_t n) {
  return (i | n) >> 32 == 0 ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(n) : i / n;
}

}  // namespace lockstep::gpu
