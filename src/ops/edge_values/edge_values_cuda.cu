#include "edge_values_kernels.hpp"
#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"

namespace lockstep::ops::cuda {
namespace {

/// One thread per entry, grid-stride. Reads 8 contiguous bytes of permutation and one scattered value; the values of
/// millions of entries stay in the second-level cache.
template <class T>
__global__ void __launch_bounds__(256)
    transpose_edges_kernel(gpu::Earlier earlier, std::int64_t count, T* __restrict__ y, const T* __restrict__ x,
                           const std::int64_t* __restrict__ opposite) {
  earlier.wait();
  // mutant-equivalent: an element computed twice gets the same value
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += stride)
    y[e] = x[opposite[e]];
}

/// One thread per four entries, whose draws are one Philox block.
template <class T>
__global__ void __launch_bounds__(256)
    drop_edges_kernel(gpu::Earlier earlier, std::int64_t count, T* __restrict__ y, const T* __restrict__ x,
                      std::uint64_t threshold, T scale, Dropout dropout) {
  earlier.wait();
  const Philox draws = dropout.draws(0);
  // mutant-equivalent: an element computed twice gets the same value
  const std::int64_t stride = 4 * std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t first = 4 * (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x); first < count; first += stride) {
    const auto words = draws.block(static_cast<std::uint64_t>(first / 4));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < count) y[first + i] = words[i] < threshold ? T{0} : x[first + i] * scale;
    }
  }
}

}  // namespace

template <class T>
void transpose_edges(const Stream& stream, std::int64_t count, T* y, const T* x, const std::int64_t* opposite) {
  gpu::launch(stream, gpu::grid_for(count), transpose_edges_kernel<T>, count, y, x, opposite);
}

template <class T>
void drop_edges(const Stream& stream, std::int64_t count, T* y, const T* x, std::uint64_t threshold, T scale,
                const Dropout& dropout) {
  gpu::launch(stream, gpu::grid_for(gpu::ceil_div(count, 4)), drop_edges_kernel<T>, count, y, x, threshold, scale,
              dropout);
}

LOCKSTEP_EACH_FLOAT(transpose_edges, drop_edges)

}  // namespace lockstep::ops::cuda
