#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "token_pool_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;

constexpr int kMostThreads = 256;

/// One block per sequence: first its weights, then one thread per column, so that loads are whole cache lines. Memory
/// bound: reads x once. scores may be null.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    token_pool_forward_kernel(gpu::Earlier earlier, std::int64_t time, std::int64_t width, T* __restrict__ z,
                              real_t<T>* w, const T* __restrict__ x, const T* __restrict__ scores) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t n = blockIdx.x;
  w += n * time;
  x += n * time * width;
  if (scores == nullptr) {
    for (std::int64_t t = threadIdx.x; t < time; t += blockDim.x) w[t] = 1 / static_cast<R>(time);
  } else {
    const T* s = scores + n * time;
    R largest = -std::numeric_limits<R>::infinity(), sum = 0;
    for (std::int64_t t = threadIdx.x; t < time; t += blockDim.x) largest = gpu::Max()(gpu::load(s + t), largest);
    largest = gpu::block_reduce(largest, -std::numeric_limits<R>::infinity(), gpu::Max());
    for (std::int64_t t = threadIdx.x; t < time; t += blockDim.x) sum += std::exp(gpu::load(s + t) - largest);
    sum = gpu::block_reduce(sum);
    for (std::int64_t t = threadIdx.x; t < time; t += blockDim.x) w[t] = std::exp(gpu::load(s + t) - largest) / sum;
  }
  __syncthreads();
  for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    R sum = 0;
#pragma unroll 4
    for (std::int64_t t = 0; t < time; ++t) sum += w[t] * gpu::load(x + t * width + c);
    gpu::store(z + n * width + c, sum);
  }
}

/// One warp per token. Memory bound: reads x, writes dx. dx and dscores may be null.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    token_pool_backward_kernel(gpu::Earlier earlier, std::int64_t tokens, std::int64_t time, std::int64_t width, T* dx,
                               bool add_dx, T* dscores, bool add_dscores, const T* __restrict__ dz,
                               const T* __restrict__ z, const real_t<T>* __restrict__ w, const T* __restrict__ x) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t token = gpu::warp_row();
  if (token >= tokens) return;
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t n = token / time;
  const R weight = w[token];
  R product = 0;
  for (std::int64_t c = lane; c < width; c += kWarp) {
    const R g = gpu::load(dz + n * width + c);
    if (dscores != nullptr) product += g * (gpu::load(x + token * width + c) - gpu::load(z + n * width + c));
    if (dx != nullptr) gpu::store(dx + token * width + c, g * weight, add_dx);
  }
  if (dscores == nullptr) return;
  product = weight * gpu::warp_reduce(product);
  if (lane == 0) gpu::store(dscores + token, product, add_dscores);
}

}  // namespace

template <class T>
void token_pool_forward(const Stream& stream, std::int64_t sequences, std::int64_t time, std::int64_t width, T* z,
                        real_t<T>* w, const T* x, const T* scores) {
  const std::int64_t threads = std::clamp<std::int64_t>(gpu::ceil_div(width, kWarp) * kWarp, kWarp, kMostThreads);
  gpu::launch(stream, {.grid = sequences, .block = threads}, token_pool_forward_kernel<T>, time, width, z, w, x,
              scores);
}

template <class T>
void token_pool_backward(const Stream& stream, std::int64_t sequences, std::int64_t time, std::int64_t width, T* dx,
                         bool add_dx, T* dscores, bool add_dscores, const T* dz, const T* z, const real_t<T>* w,
                         const T* x) {
  const std::int64_t tokens = sequences * time;
  gpu::launch(stream, gpu::warp_per_row(tokens), token_pool_backward_kernel<T>, tokens, time, width, dx, add_dx,
              dscores, add_dscores, dz, z, w, x);
}

LOCKSTEP_EACH_STORAGE(token_pool_forward, token_pool_backward)

}  // namespace lockstep::ops::cuda
