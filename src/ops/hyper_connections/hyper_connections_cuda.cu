#include <algorithm>

#include "hyper_connections_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "sinkhorn_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kMost = static_cast<int>(HyperConnection::kMostStreams);
constexpr int kMapWarps = 8;  ///< warps of a block that computes maps
/// Tokens of such a block; fewer if the number of streams is not known at compile time, because shared memory is short.
template <int kN>
constexpr int kMapTokens = kN > 0 ? 32 : 16;
constexpr int kGateThreads = 64;  ///< one token each
constexpr int kColumns = 128;     ///< threads, one column each, of a block that loops over tokens
/// The number of chunks of tokens for the gradient of the weights, a function of the shape alone. A chunk has every
/// weight_chunks()-th group of kGroup tokens.
constexpr std::int64_t kGroup = 64;
std::int64_t weight_chunks(std::int64_t tokens) { return std::clamp<std::int64_t>(ceil_div(tokens, kGroup), 1, 128); }

/// Values that are the same for all tokens.
template <class T>
struct Maps {
  std::int64_t tokens, width;  ///< width = n C
  int n, maps, steps;
  real_t<T> eps;
  const T *alpha[3], *bias[3], *weight[3];

  explicit Maps(std::int64_t count, std::int64_t columns, const HyperConnection& h)
      : tokens(count),
        width(columns),
        n(static_cast<int>(h.streams())),
        maps(static_cast<int>(h.maps())),
        steps(static_cast<int>(h.sinkhorn_steps)),
        eps(static_cast<real_t<T>>(h.eps)),
        alpha{h.alpha_pre.data<T>(), h.alpha_post.data<T>(), h.alpha_res.data<T>()},
        bias{h.bias_pre.data<T>(), h.bias_post.data<T>(), h.bias_res.data<T>()},
        weight{h.weight_pre.data<T>(), h.weight_post.data<T>(), h.weight_res.data<T>()} {}

  /// The map (0: pre, 1: post, 2: res) that column k belongs to, and its index in that map.
  __host__ __device__ int kind(int k) const { return k < n ? 0 : k < 2 * n ? 1 : 2; }
  __host__ __device__ int index(int k) const { return k - kind(k) * n; }
  /// Selects by comparisons: an index known only at run time would move the array to local memory.
  __device__ static const T* pick(const T* const (&of)[3], int kind) {
    return kind == 0 ? of[0] : kind == 1 ? of[1] : of[2];
  }
  __device__ const T* weight_row(int k) const { return pick(weight, kind(k)) + index(k) * width; }
  __device__ real_t<T> gate(int k) const { return load(pick(alpha, kind(k))); }
  __device__ real_t<T> logit(int k, real_t<T> raw) const {
    return gate(k) * raw + load(pick(bias, kind(k)) + index(k));
  }
};

template <class T>
__device__ T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}
template <class T>
__device__ T clamped(T z) {
  return z > T{10} ? T{10} : z < T{-10} ? T{-10} : z;
}

/// Products, norms and maps of 32 tokens per block. First one lane per map and four tokens per warp: columns are
/// processed in tiles in shared memory, and all lanes of a warp read the same value of x. Then one thread per token:
/// its matrix stays in registers through all Sinkhorn steps. Reads x once, and the weights once per block, from L2.
template <class T, int kN>
__global__ void __launch_bounds__(kWarp* kMapWarps)
    maps_kernel(gpu::Earlier earlier, Maps<T> p, real_t<T>* __restrict__ maps, real_t<T>* __restrict__ raw,
                real_t<T>* __restrict__ scale, const T* __restrict__ x) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kTokens = kMapTokens<kN>, kEach = kTokens / kMapWarps;
  constexpr int kMostMaps = (kN > 0 ? kN : kMost) * (2 + (kN > 0 ? kN : kMost));
  constexpr int kGroups = (kMostMaps + kWarp - 1) / kWarp;
  __shared__ R sm_x[kTokens][kWarp + 1], sm_w[kMostMaps][kWarp + 1], sm_maps[kTokens][kMostMaps + 1];
  const int n = kN > 0 ? kN : p.n, count = n * (2 + n);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTokens;
  R product[kGroups][kEach] = {}, squares[kEach] = {};
  for (std::int64_t column = 0; column < p.width; column += kWarp) {
    const std::int64_t c = column + lane;
    __syncthreads();
    for (int t = warp; t < kTokens; t += kMapWarps)
      sm_x[t][lane] = first + t < p.tokens && c < p.width ? load(x + (first + t) * p.width + c) : R{0};
    for (int k = warp; k < count; k += kMapWarps) sm_w[k][lane] = c < p.width ? load(p.weight_row(k) + c) : R{0};
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kEach; ++t) {
      const R v = sm_x[warp * kEach + t][lane];
      squares[t] += v * v;
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int k = g * kWarp + lane;
      if (k >= count) continue;
#pragma unroll 8
      for (int i = 0; i < kWarp; ++i) {
        const R w = sm_w[k][i];
#pragma unroll
        for (int t = 0; t < kEach; ++t) product[g][t] += w * sm_x[warp * kEach + t][i];
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kEach; ++t) {
    const std::int64_t token = first + warp * kEach + t;
    const R norm = 1 / sqrt(warp_reduce(squares[t]) / static_cast<R>(p.width) + p.eps);
    if (token >= p.tokens) break;
    if (lane == 0) scale[token] = norm;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int k = g * kWarp + lane;
      if (k >= count) continue;
      raw[token * count + k] = product[g][t] * norm;
      sm_maps[warp * kEach + t][k] = p.logit(k, product[g][t] * norm);
    }
  }
  __syncthreads();
  if (const int t = static_cast<int>(threadIdx.x); t < kTokens && first + t < p.tokens) {
    R* mine = sm_maps[t];
    for (int k = 0; k < 2 * n; ++k) mine[k] = static_cast<R>(k < n ? 1 : 2) * sigmoid(mine[k]);
    Sinkhorn<R, kN> res;
#pragma unroll Sinkhorn < R, kN> ::kUnroll
    for (int a = 0; a < n; ++a)
#pragma unroll Sinkhorn < R, kN> ::kUnroll
      for (int b = 0; b < n; ++b) res.m[a][b] = exp(clamped(mine[(2 + a) * n + b]));
#pragma unroll 1
    for (int step = 0; step < p.steps; ++step) {
      res.template divide<true>(n, nullptr, 0);
      res.template divide<false>(n, nullptr, 0);
    }
#pragma unroll Sinkhorn < R, kN> ::kUnroll
    for (int a = 0; a < n; ++a)
#pragma unroll Sinkhorn < R, kN> ::kUnroll
      for (int b = 0; b < n; ++b) mine[(2 + a) * n + b] = res.m[a][b];
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < kTokens * count; e += kWarp * kMapWarps)
    if (first + e / count < p.tokens) maps[first * count + e] = sm_maps[e / count][e % count];
}

/// Replaces the gradient of the maps by the gradient of the products W x, in dmaps; one thread per token. Repeats the
/// Sinkhorn steps and stores the sums that they divide by in `sums` (2 steps n, tokens), then goes back through the
/// steps; matrices stay in registers. Also stores `factor` of the gradient of x through the norm, factor x, and in
/// `partials` (blocks, 3 + maps) the sums over a block's tokens of the gradients of alpha (3) and bias (maps).
template <class T, int kN>
__global__ void __launch_bounds__(kGateThreads)
    gates_backward_kernel(gpu::Earlier earlier, Maps<T> p, real_t<T>* __restrict__ dmaps,
                          real_t<T>* __restrict__ factor, real_t<T>* __restrict__ partials,
                          real_t<T>* __restrict__ sums, const real_t<T>* __restrict__ raw,
                          const real_t<T>* __restrict__ scale) {
  earlier.wait();
  using R = real_t<T>;
  using Matrix = Sinkhorn<R, kN>;
  const int n = kN > 0 ? kN : p.n, count = n * (2 + n), thread = static_cast<int>(threadIdx.x);
  const int row = (3 + count) | 1;  // odd, so that the threads' rows start in different banks
  R* const sm_sums = reinterpret_cast<R*>(sm_bytes);
  R* const mine = sm_sums + thread * row;
  const std::int64_t token = std::int64_t{blockIdx.x} * kGateThreads + thread;
  for (int k = 0; k < 3 + count; ++k) mine[k] = 0;
  if (token < p.tokens) {
    const R norm = scale[token];
    const R* const z = raw + token * count;
    R* const d = dmaps + token * count;
    R along = 0;
    // Computes the gradients of alpha, bias and the product from the gradient of logit k.
    const auto finish = [&](int k, R dz) {
      const R by_raw = dz * p.gate(k);
      mine[p.kind(k)] += dz * z[k];
      mine[3 + k] = dz;
      along += by_raw * z[k];
      d[k] = by_raw * norm;
    };
    for (int k = 0; k < 2 * n; ++k) {
      const R y = sigmoid(p.logit(k, z[k]));
      finish(k, d[k] * y * (1 - y) * static_cast<R>(k < n ? 1 : 2));
    }
    Matrix res, gradient;
#pragma unroll Matrix::kUnroll
    for (int a = 0; a < n; ++a)
#pragma unroll Matrix::kUnroll
      for (int b = 0; b < n; ++b) {
        const int k = (2 + a) * n + b;
        res.m[a][b] = exp(clamped(p.logit(k, z[k])));
        gradient.m[a][b] = d[k];
      }
    R* at = sums + token;
#pragma unroll 1
    for (int step = 0; step < p.steps; ++step, at += 2 * n * p.tokens) {
      res.template divide<true>(n, at, p.tokens);
      res.template divide<false>(n, at + n * p.tokens, p.tokens);
    }
#pragma unroll 1
    for (int step = 0; step < p.steps; ++step) {
      at -= 2 * n * p.tokens;
      res.template undo<false>(n, gradient, at + n * p.tokens, p.tokens);
      res.template undo<true>(n, gradient, at, p.tokens);
    }
#pragma unroll Matrix::kUnroll
    for (int a = 0; a < n; ++a)
#pragma unroll Matrix::kUnroll
      for (int b = 0; b < n; ++b) {
        const int k = (2 + a) * n + b;
        const R logit = p.logit(k, z[k]);
        finish(k, logit > R{10} || logit < R{-10} ? R{0} : gradient.m[a][b] * exp(logit));
      }
    factor[token] = -norm * norm * along / static_cast<R>(p.width);
  }
  __syncthreads();
  for (int k = thread; k < 3 + count; k += kGateThreads) {
    R sum = 0;
    for (int t = 0; t < kGateThreads; ++t) sum += sm_sums[t * row + k];
    partials[std::int64_t{blockIdx.x} * (3 + count) + k] = sum;
  }
}

/// dx_c += factor x_c + sum_k d_k W_kc. A thread has one column and eight tokens, so each weight is used in eight
/// products. Reads and writes x and dx once.
template <class T>
__global__ void __launch_bounds__(kColumns)
    maps_dx_kernel(gpu::Earlier earlier, Maps<T> p, T* __restrict__ dx, const real_t<T>* __restrict__ d,
                   const real_t<T>* __restrict__ factor, const T* __restrict__ x) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kTokens = 8;
  __shared__ R sm_d[kTokens][kMost * (2 + kMost)];
  const std::int64_t c = std::int64_t{blockIdx.y} * kColumns + threadIdx.x, first = std::int64_t{blockIdx.x} * kTokens;
  for (int e = static_cast<int>(threadIdx.x); e < kTokens * p.maps; e += kColumns)
    sm_d[e / p.maps][e % p.maps] = first + e / p.maps < p.tokens ? d[first * p.maps + e] : R{0};
  __syncthreads();
  if (c >= p.width) return;
  R sum[kTokens] = {};
  for (int k = 0; k < p.maps; ++k) {
    const R w = load(p.weight_row(k) + c);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sum[t] += sm_d[t][k] * w;
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (first + t >= p.tokens) break;
    const std::int64_t at = (first + t) * p.width + c;
    store(dx + at, factor[first + t] * load(x + at) + sum[t], true);
  }
}

/// Partial sums of dW_kc = sum over tokens of d_k x_c, over one chunk of the tokens: (chunks, maps, width). Tokens of
/// gradient 0 after the last one change no bit. A thread has one column and 24 maps (all maps with four streams), so x
/// is read once. d comes through L1 and is the same for all lanes.
template <class T>
__global__ void __launch_bounds__(kColumns)
    maps_dweight_kernel(gpu::Earlier earlier, Maps<T> p, real_t<T>* __restrict__ partials,
                        const real_t<T>* __restrict__ d, const T* __restrict__ x) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kEach = 24;
  const std::int64_t c = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
  if (c >= p.width) return;
  const int k0 = static_cast<int>(blockIdx.z) * kEach;
  R sum[kEach] = {};
  for (std::int64_t first = blockIdx.y * kGroup; first < p.tokens; first += gridDim.y * kGroup) {
    const std::int64_t end = first + kGroup < p.tokens ? first + kGroup : p.tokens;
    for (std::int64_t token = first; token < end; ++token) {
      const R v = load(x + token * p.width + c);
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        if (k0 + k < p.maps) sum[k] += d[token * p.maps + k0 + k] * v;
    }
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (k0 + k < p.maps) partials[(std::int64_t{blockIdx.y} * p.maps + k0 + k) * p.width + c] = sum[k];
}

/// Adds partial sums in their order. Element e of each goes to to(e), unless that is null.
template <class T, class To>
__global__ void __launch_bounds__(256) sum_chunks_kernel(gpu::Earlier earlier, std::int64_t chunks, std::int64_t size,
                                                         const T* __restrict__ partials, To to) {
  earlier.wait();
  const std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= size) return;
  T* out = to(e);
  if (out == nullptr) return;
  T sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partials[chunk * size + e];
  *out += sum;
}
template <class T, class To>
void sum_chunks(const Stream& stream, std::int64_t chunks, std::int64_t size, const T* partials, const To& to) {
  launch(stream, {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(size, 256)), .block = 256},
         sum_chunks_kernel<T, To>, chunks, size, partials, to);
}

/// The address of element e of the gradients of (alpha pre, post, res, all biases).
template <class T>
struct ToGates {
  T *alpha[3], *bias[3];
  int n;
  __device__ T* operator()(std::int64_t e) const {
    if (e < 3) return e == 0 ? alpha[0] : e == 1 ? alpha[1] : alpha[2];
    const std::int64_t k = e - 3;
    T* const to = k < n ? bias[0] : k < 2 * n ? bias[1] : bias[2];
    return to == nullptr ? nullptr : to + (k < n ? k : k < 2 * n ? k - n : k - 2 * n);
  }
};
/// The address of element e of the gradients of the three weights, stacked by rows.
template <class T>
struct ToWeights {
  T* weight[3];
  int n;
  std::int64_t width;
  __device__ T* operator()(std::int64_t e) const {
    const std::int64_t size = n * width;
    T* const to = e < size ? weight[0] : e < 2 * size ? weight[1] : weight[2];
    return to == nullptr ? nullptr : to + (e < size ? e : e < 2 * size ? e - size : e - 2 * size);
  }
};

}  // namespace

template <class T>
void hyper_maps_forward(const Stream& stream, real_t<T>* maps, real_t<T>* raw, real_t<T>* scale, const T* x,
                        std::int64_t tokens, std::int64_t width, const HyperConnection& h) {
  const Maps<T> p(tokens, width, h);
  const auto blocks_of = [=](int each) { return static_cast<unsigned>(ceil_div<std::int64_t>(tokens, each)); };
  launch(stream, {.grid = blocks_of(p.n == 4 ? kMapTokens<4> : kMapTokens<0>), .block = kWarp * kMapWarps},
         p.n == 4 ? maps_kernel<T, 4> : maps_kernel<T, 0>, p, maps, raw, scale, x);
}

template <class T>
void hyper_maps_backward(const Stream& stream, T* dx, const HyperConnectionGradients& g, real_t<T>* dmaps,
                         const real_t<T>* raw, const real_t<T>* scale, const T* x, std::int64_t tokens,
                         std::int64_t width, const HyperConnection& h) {
  using R = real_t<T>;
  const Maps<T> p(tokens, width, h);
  const std::int64_t blocks = ceil_div<std::int64_t>(tokens, kGateThreads), gates = 3 + p.maps;
  const std::int64_t chunks = weight_chunks(tokens), weights = p.maps * width;
  R* factor = reinterpret_cast<R*>(scratch(
      stream,
      static_cast<std::size_t>(tokens * (1 + 2 * p.steps * p.n) + blocks * gates + chunks * weights) * sizeof(R)));
  R *sums = factor + tokens, *gate_parts = sums + 2 * p.steps * p.n * tokens,
    *weight_sums = gate_parts + blocks * gates;

  launch(stream,
         {.grid = static_cast<unsigned>(blocks),
          .block = kGateThreads,
          .shared_bytes = static_cast<std::size_t>(kGateThreads * (gates | 1)) * sizeof(R)},
         p.n == 4 ? gates_backward_kernel<T, 4> : gates_backward_kernel<T, 0>, p, dmaps, factor, gate_parts, sums, raw,
         scale);
  sum_chunks(stream, blocks, gates, gate_parts,
             ToGates<R>{{g.alpha_pre.tensor.data<R>(), g.alpha_post.tensor.data<R>(), g.alpha_res.tensor.data<R>()},
                        {g.bias_pre.tensor.data<R>(), g.bias_post.tensor.data<R>(), g.bias_res.tensor.data<R>()},
                        p.n});
  const auto column_blocks = static_cast<unsigned>(ceil_div<std::int64_t>(width, kColumns));
  if (dx != nullptr)
    launch(stream,
           {.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(tokens, 8)), column_blocks), .block = kColumns},
           maps_dx_kernel<T>, p, dx, dmaps, factor, x);
  launch(stream,
         {.grid = dim3(column_blocks, static_cast<unsigned>(chunks), static_cast<unsigned>(ceil_div(p.maps, 24))),
          .block = kColumns},
         maps_dweight_kernel<T>, p, weight_sums, dmaps, x);
  sum_chunks(
      stream, chunks, weights, weight_sums,
      ToWeights<R>{
          {g.weight_pre.tensor.data<R>(), g.weight_post.tensor.data<R>(), g.weight_res.tensor.data<R>()}, p.n, width});
}

LOCKSTEP_EACH_STORAGE(hyper_maps_forward)
LOCKSTEP_EACH_STORAGE(hyper_maps_backward)

}  // namespace lockstep::ops::cuda
