#include "lockstep/ops/edge_values.hpp"

#include <algorithm>

#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// One thread per entry, grid-stride. Reads 8 contiguous bytes of permutation and one scattered value; the values of
/// millions of entries stay in the second-level cache.
template <class T>
__global__ void __launch_bounds__(256)
    transpose_edges_kernel(gpu::Earlier earlier, std::int64_t count, T* __restrict__ y, const T* __restrict__ x,
                           const std::int64_t* __restrict__ opposite) {
  earlier.wait();
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

void transpose_edges(Stream& stream, const Tensor& y, const Tensor& x, std::span<const std::int64_t> opposite) {
  const std::int64_t count = x.size();
  require(y.size() == count && opposite.size() == static_cast<std::size_t>(count) && x.dtype() == y.dtype(),
          "transpose_edges: ", count, " values do not fit y of ", y.size(), " and a permutation of ", opposite.size());
  on_gpu_in_floats(x, [&]<class T>() {
    gpu::launch(stream, gpu::grid_for(count), transpose_edges_kernel<T>, count, y.data<T>(), x.data<T>(),
                opposite.data());
  });
  on_cpu(x, [&]<class T>() {
    const T* from = x.data<const T>();
    T* to = y.data<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t e = 0; e < count; ++e) to[e] = from[opposite[e]];
  });
}

void drop_edges(Stream& stream, const Tensor& y, const Tensor& x, const Dropout& dropout) {
  const std::int64_t count = x.size();
  require(y.size() == count && x.dtype() == y.dtype(), "drop_edges: ", count, " values do not fit y of ", y.size());
  const auto threshold = static_cast<std::uint64_t>(dropout.rate * 0x1p32);
  on_gpu_in_floats(x, [&]<class T>() {
    gpu::launch(stream, gpu::grid_for(gpu::ceil_div(count, 4)), drop_edges_kernel<T>, count, y.data<T>(), x.data<T>(),
                threshold, static_cast<T>(1 / (1 - dropout.rate)), dropout);
  });
  on_cpu(x, [&]<class T>() {
    const T* from = x.data<const T>();
    T* to = y.data<T>();
    const T scale = static_cast<T>(1 / (1 - dropout.rate));
    const Philox draws = dropout.draws(0);
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < count; first += 4) {
      const auto words = draws.block(static_cast<std::uint64_t>(first / 4));
      for (std::int64_t e = first; e < std::min(first + 4, count); ++e)
        to[e] = words[e - first] < threshold ? T{0} : from[e] * scale;
    }
  });
}

}  // namespace lockstep::ops
