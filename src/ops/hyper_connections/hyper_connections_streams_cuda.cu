#include "hyper_connections_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kTokenWarps = 8;

/// The n streams of a token and its maps. kN is n if known at compile time, so that values stay in registers; 0: use
/// the argument.
template <int kN>
struct Streams {
  static constexpr int kMost = kN > 0 ? kN : static_cast<int>(HyperConnection::kMostStreams);
  std::int64_t tokens, channels;
  int given;
  __host__ __device__ int n() const { return kN > 0 ? kN : given; }
  __host__ __device__ int maps() const { return n() * (2 + n()); }
};
template <class F>
void visit_streams(std::int64_t tokens, std::int64_t channels, std::int64_t n, const F& f) {
  if (tokens == 0 || channels == 0) return;
  if (n == 4)
    f(Streams<4>{tokens, channels, 4});
  else
    f(Streams<0>{tokens, channels, static_cast<int>(n)});
}

/// One thread per V neighbouring channels of a token. Memory bound: all threads of a token read the same maps.
template <class T, int kN, int V>
__global__ void __launch_bounds__(256) read_kernel(gpu::Earlier earlier, Streams<kN> s, T* __restrict__ u,
                                                   const T* __restrict__ x, const real_t<T>* __restrict__ maps) {
  earlier.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, c = s.channels, packs = s.tokens * c / V;
  for (std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; pack < packs; pack += stride) {
    const std::int64_t e = pack * V, token = quotient(e, c), channel = e - token * c;
    const T* from = x + token * s.n() * c + channel;
    const real_t<T>* pre = maps + token * s.maps();
    Pack<real_t<T>, V> sum = {};
#pragma unroll
    for (int k = 0; k < Streams<kN>::kMost; ++k) {
      if (k >= s.n()) break;
      const Pack<real_t<T>, V> value = load<V>(from + k * c);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += pre[k] * value.at[v];
    }
    store(u + e, sum);
  }
}

/// One thread per V neighbouring channels of a token, whose n values are read once. Memory bound.
template <class T, int kN, int V>
__global__ void __launch_bounds__(256)
    write_kernel(gpu::Earlier earlier, Streams<kN> s, T* __restrict__ out, const T* __restrict__ x,
                 const real_t<T>* __restrict__ maps, const T* __restrict__ y) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kMost = Streams<kN>::kMost;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, c = s.channels, packs = s.tokens * c / V;
  for (std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; pack < packs; pack += stride) {
    const std::int64_t e = pack * V, token = quotient(e, c), at = token * s.n() * c + e - token * c;
    const R *post = maps + token * s.maps() + s.n(), *res = post + s.n();
    Pack<R, V> from[kMost] = {};
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (k < s.n()) from[k] = load<V>(x + at + k * c);
    const Pack<R, V> value = load<V>(y + e);
#pragma unroll
    for (int m = 0; m < kMost; ++m) {
      if (m >= s.n()) break;
      Pack<R, V> sum = {};
#pragma unroll
      for (int k = 0; k < kMost; ++k) {
        if (k >= s.n()) break;
#pragma unroll
        for (int v = 0; v < V; ++v) sum.at[v] += res[m * s.n() + k] * from[k].at[v];
      }
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += post[m] * value.at[v];
      store(out + at + m * c, sum);
    }
  }
}

/// Channels per thread of a forward kernel: up to four, 16 bytes of f32.
template <class T>
constexpr int kChannels = sizeof(T) == 8 ? 2 : 4;

enum class Write : std::int64_t { store, add };
/// A gradient's destination; null: not computed.
template <class T>
struct Into {
  T* to;
  Write how;
  Into(T* place, bool accumulate) : to(place), how(accumulate ? Write::add : Write::store) {}
  template <int V>
  __device__ void put(std::int64_t at, Pack<real_t<T>, V> value) const {
    if (to == nullptr) return;
    if (how == Write::add) {
      const Pack<real_t<T>, V> before = load<V>(to + at);
#pragma unroll
      for (int v = 0; v < V; ++v) value.at[v] = before.at[v] + value.at[v];
    }
    store(to + at, value);
  }
};

/// One warp per token, V neighbouring channels per lane: dx_k = pre_k du and the sums dpre_k = du . x_k in one pass.
template <class T, int kN, int V>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    read_backward_kernel(gpu::Earlier earlier, Streams<kN> s, Into<T> dx, real_t<T>* __restrict__ dmaps,
                         const T* __restrict__ du, const T* __restrict__ x, const real_t<T>* __restrict__ maps) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kMost = Streams<kN>::kMost;
  const std::int64_t token = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y, c = s.channels;
  if (token >= s.tokens) return;
  const std::int64_t at = token * s.n() * c;
  R pre[kMost] = {}, sum[kMost] = {};
#pragma unroll
  for (int k = 0; k < kMost; ++k)
    if (k < s.n()) pre[k] = maps[token * s.maps() + k];
  for (std::int64_t channel = V * threadIdx.x; channel < c; channel += V * kWarp) {
    const Pack<R, V> d = load<V>(du + token * c + channel);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= s.n()) break;
      const Pack<R, V> from = load<V>(x + at + k * c + channel);
      Pack<R, V> to;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[k] += d.at[v] * from.at[v];
        to.at[v] = pre[k] * d.at[v];
      }
      dx.put(at + k * c + channel, to);
    }
  }
  if (dmaps == nullptr) return;
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    if (k >= s.n()) break;
    const R total = warp_reduce(sum[k]);
    if (threadIdx.x == 0) dmaps[token * s.maps() + k] += total;
  }
}

/// One warp per token, V neighbouring channels per lane: dx, dy and the n + n n sums of the maps' gradient in one pass
/// over dout, x and y.
template <class T, int kN, int V>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    write_backward_kernel(gpu::Earlier earlier, Streams<kN> s, Into<T> dx, real_t<T>* __restrict__ dmaps, Into<T> dy,
                          const T* __restrict__ dout, const T* __restrict__ x, const real_t<T>* __restrict__ maps,
                          const T* __restrict__ y) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kMost = Streams<kN>::kMost;
  const std::int64_t token = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y, c = s.channels;
  if (token >= s.tokens) return;
  const std::int64_t at = token * s.n() * c;
  const R *post = maps + token * s.maps() + s.n(), *res = post + s.n();
  R dpost[kMost] = {}, dres[kMost][kMost] = {};
  for (std::int64_t channel = V * threadIdx.x; channel < c; channel += V * kWarp) {
    Pack<R, V> d[kMost] = {}, by_post = {};
    const Pack<R, V> value = load<V>(y + token * c + channel);
#pragma unroll
    for (int m = 0; m < kMost; ++m) {
      if (m >= s.n()) break;
      d[m] = load<V>(dout + at + m * c + channel);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        by_post.at[v] += post[m] * d[m].at[v];
        dpost[m] += d[m].at[v] * value.at[v];
      }
    }
    dy.put(token * c + channel, by_post);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= s.n()) break;
      const Pack<R, V> from = load<V>(x + at + k * c + channel);
      Pack<R, V> by_res = {};
#pragma unroll
      for (int m = 0; m < kMost; ++m) {
        if (m >= s.n()) break;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          by_res.at[v] += res[m * s.n() + k] * d[m].at[v];
          dres[m][k] += d[m].at[v] * from.at[v];
        }
      }
      dx.put(at + k * c + channel, by_res);
    }
  }
  if (dmaps == nullptr) return;
  R* to = dmaps + token * s.maps() + s.n();
  const auto finish = [&](int place, R sum) {
    const R total = warp_reduce(sum);
    if (threadIdx.x == 0) to[place] += total;
  };
#pragma unroll
  for (int m = 0; m < kMost; ++m) {
    if (m >= s.n()) break;
    finish(m, dpost[m]);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= s.n()) break;
      finish((1 + m) * s.n() + k, dres[m][k]);
    }
  }
}

/// Channels that a lane of a backward kernel holds at once: 4 bytes, so that 64 channels keep a whole warp busy.
template <class T>
constexpr int kLaneChannels = sizeof(T) == 2 ? 2 : 1;

Grid warp_per_token(std::int64_t tokens) {
  return {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(tokens, kTokenWarps)),
          .block = dim3(kWarp, kTokenWarps)};
}

}  // namespace

template <class T>
void hyper_read_forward(const Stream& stream, T* u, const T* x, const real_t<T>* maps, std::int64_t tokens,
                        std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    constexpr int V = kChannels<T>;
    if (channels % V == 0 && aligned_for<V>(u, x))
      launch(stream, grid_for(tokens * channels / V), read_kernel<T, kN, V>, s, u, x, maps);
    else
      launch(stream, grid_for(tokens * channels), read_kernel<T, kN, 1>, s, u, x, maps);
  });
}

template <class T>
void hyper_read_backward(const Stream& stream, T* dx, bool accumulate, real_t<T>* dmaps, const T* du, const T* x,
                         const real_t<T>* maps, std::int64_t tokens, std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    constexpr int V = kLaneChannels<T>;
    launch(stream, warp_per_token(tokens),
           channels % V == 0 && aligned_for<V>(dx, du, x) ? read_backward_kernel<T, kN, V>
                                                          : read_backward_kernel<T, kN, 1>,
           s, Into<T>{dx, accumulate}, dmaps, du, x, maps);
  });
}

template <class T>
void hyper_write_forward(const Stream& stream, T* out, const T* x, const real_t<T>* maps, const T* y,
                         std::int64_t tokens, std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    constexpr int V = kChannels<T>;
    if (channels % V == 0 && aligned_for<V>(out, x, y))
      launch(stream, grid_for(tokens * channels / V), write_kernel<T, kN, V>, s, out, x, maps, y);
    else
      launch(stream, grid_for(tokens * channels), write_kernel<T, kN, 1>, s, out, x, maps, y);
  });
}

template <class T>
void hyper_write_backward(const Stream& stream, T* dx, bool accumulate_dx, real_t<T>* dmaps, T* dy, bool accumulate_dy,
                          const T* dout, const T* x, const real_t<T>* maps, const T* y, std::int64_t tokens,
                          std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    constexpr int V = kLaneChannels<T>;
    launch(stream, warp_per_token(tokens),
           channels % V == 0 && aligned_for<V>(dx, dy, dout, x, y) ? write_backward_kernel<T, kN, V>
                                                                   : write_backward_kernel<T, kN, 1>,
           s, Into<T>{dx, accumulate_dx}, dmaps, Into<T>{dy, accumulate_dy}, dout, x, maps, y);
  });
}

LOCKSTEP_EACH_STORAGE(hyper_read_forward)
LOCKSTEP_EACH_STORAGE(hyper_read_backward)
LOCKSTEP_EACH_STORAGE(hyper_write_forward)
LOCKSTEP_EACH_STORAGE(hyper_write_backward)

}  // namespace lockstep::ops::cuda
