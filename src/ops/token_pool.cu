#include "lockstep/ops/token_pool.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Kernels for one sequence of T tokens of D columns.
template <class T>
struct TokenPoolKernels {
  /// z = sum_t w_t x_t
  void (*forward)(std::int64_t time, std::int64_t width, T* z, const T* w, const T* x);
  /// dx_t (+)= w_t dz and dscores_t (+)= w_t dz (x_t - z). A null gradient is not computed.
  void (*backward)(std::int64_t time, std::int64_t width, T* dx, bool add_dx, T* dscores, bool add_dscores, const T* dz,
                   const T* z, const T* w, const T* x);
};

LOCKSTEP_KERNELS(TokenPoolKernels, token_pool_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void forward(std::int64_t time, std::int64_t width, T* z, const T* w, const T* x) {
  for (std::int64_t c = 0; c < width; c += kLanes<T>) {
    const Lanes<T> lanes = lanes_at<T>(c, width);
    Vec<T> sum{};
    for (std::int64_t t = 0; t < time; ++t) sum = fma(splat(w[t]), load(x + t * width + c, lanes), sum);
    store(z + c, sum, lanes);
  }
}

template <class T>
void backward(std::int64_t time, std::int64_t width, T* dx, bool add_dx, T* dscores, bool add_dscores, const T* dz,
              const T* z, const T* w, const T* x) {
  for (std::int64_t t = 0; t < time; ++t) {
    const T* xt = x + t * width;
    Vec<T> product{};
    for (std::int64_t c = 0; c < width; c += kLanes<T>) {
      const Lanes<T> lanes = lanes_at<T>(c, width);
      const Vec<T> g = load(dz + c, lanes);
      if (dscores) product = fma(g, load(xt + c, lanes) - load(z + c, lanes), product);
      if (!dx) continue;
      T* to = dx + t * width + c;
      const Vec<T> d = g * splat(w[t]);
      store(to, add_dx ? load(to, lanes) + d : d, lanes);
    }
    if (!dscores) continue;
    T sum = product[0];
    for (int i = 1; i < kLanes<T>; ++i) sum += product[i];
    dscores[t] = add_dscores ? dscores[t] + w[t] * sum : w[t] * sum;
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(TokenPoolKernels, token_pool_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

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

struct Extents {
  std::int64_t sequences, time, width;
};
Extents extents_of(const Tensor& z, const Tensor& w, const Tensor& x) {
  require(x.shape().rank() == 3, "token pool: x must be (N, T, D), not ", x.shape());
  const Extents e{x.shape()[0], x.shape()[1], x.shape()[2]};
  require(z.size() == e.sequences * e.width && w.size() == e.sequences * e.time, "token pool: x is ", x.shape(),
          ", so z must be (", e.sequences, ", ", e.width, ") and w (", e.sequences, ", ", e.time, "), not ", z.shape(),
          " and ", w.shape());
  return e;
}
}  // namespace

void token_pool_forward(Stream& stream, const Tensor& z, const Tensor& w, const Tensor& x, const Tensor& scores) {
  const Extents e = extents_of(z, w, x);
  const bool scored = scores.shape().rank() > 0;
  require(!scored || scores.size() == w.size(), "token pool: w is ", w.shape(), ", so scores must be too, not ",
          scores.shape());
  on_gpu(x, [&]<class T>() {
    const std::int64_t threads = std::clamp<std::int64_t>(gpu::ceil_div(e.width, kWarp) * kWarp, kWarp, kMostThreads);
    gpu::launch(stream, {.grid = e.sequences, .block = threads}, token_pool_forward_kernel<T>, e.time, e.width,
                z.data<T>(), w.data<real_t<T>>(), x.data<T>(), scores.data<T>());
  });
  on_cpu(x, [&]<class T>() {
    const auto kernel = cpu::active_token_pool_kernels<T>().forward;
    for (std::int64_t n = 0; n < e.sequences; ++n) {
      T* weight = w.data<T>() + n * e.time;
      if (scored) {
        const T* s = scores.data<T>() + n * e.time;
        const T largest = *std::max_element(s, s + e.time);
        T sum = 0;
        for (std::int64_t t = 0; t < e.time; ++t) sum += weight[t] = std::exp(s[t] - largest);
        for (std::int64_t t = 0; t < e.time; ++t) weight[t] /= sum;
      } else {
        std::fill_n(weight, e.time, 1 / static_cast<T>(e.time));
      }
      kernel(e.time, e.width, z.data<T>() + n * e.width, weight, x.data<T>() + n * e.time * e.width);
    }
  });
}

void token_pool_backward(Stream& stream, Target dx, Target dscores, const Tensor& dz, const Tensor& z, const Tensor& w,
                         const Tensor& x) {
  const Extents e = extents_of(z, w, x);
  require(dz.shape() == z.shape() && (!dx || dx.tensor.shape() == x.shape()) &&
              (!dscores || dscores.tensor.size() == w.size()),
          "token pool backward: x is ", x.shape(), ", z ", z.shape(), "; dx is ", dx.tensor.shape(), ", dz ",
          dz.shape(), ", dscores ", dscores.tensor.shape());
  on_gpu(x, [&]<class T>() {
    const std::int64_t tokens = e.sequences * e.time;
    gpu::launch(stream, gpu::warp_per_row(tokens), token_pool_backward_kernel<T>, tokens, e.time, e.width,
                dx.tensor.data<T>(), dx.accumulate, dscores.tensor.data<T>(), dscores.accumulate, dz.data<T>(),
                z.data<T>(), w.data<real_t<T>>(), x.data<T>());
  });
  on_cpu(x, [&]<class T>() {
    const auto kernel = cpu::active_token_pool_kernels<T>().backward;
    for (std::int64_t n = 0; n < e.sequences; ++n)
      kernel(e.time, e.width, dx ? dx.tensor.data<T>() + n * e.time * e.width : nullptr, dx.accumulate,
             dscores ? dscores.tensor.data<T>() + n * e.time : nullptr, dscores.accumulate, dz.data<T>() + n * e.width,
             z.data<T>() + n * e.width, w.data<T>() + n * e.time, x.data<T>() + n * e.time * e.width);
  });
}

}  // namespace lockstep::ops

#endif
