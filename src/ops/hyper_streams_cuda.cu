#include "hyper_connections_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kTokenWarps = 8;

/// n streams of a token and its maps. kN: n when known, so that values stay in registers; 0: as given.
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

/// A thread per channel of a token. Memory bound: the maps of a token are the same for all its threads.
template <class T, int kN>
__global__ void __launch_bounds__(256)
    read_kernel(Streams<kN> s, T* __restrict__ u, const T* __restrict__ x, const T* __restrict__ maps) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, c = s.channels;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < s.tokens * c; e += stride) {
    const std::int64_t token = e / c, channel = e % c;
    const T *from = x + token * s.n() * c + channel, *pre = maps + token * s.maps();
    T sum = 0;
#pragma unroll
    for (int k = 0; k < Streams<kN>::kMost; ++k)
      if (k < s.n()) sum += pre[k] * from[k * c];
    u[e] = sum;
  }
}

/// A thread per channel of a token: its n values are read once.
template <class T, int kN>
__global__ void __launch_bounds__(256) write_kernel(Streams<kN> s, T* __restrict__ out, const T* __restrict__ x,
                                                    const T* __restrict__ maps, const T* __restrict__ y) {
  constexpr int kMost = Streams<kN>::kMost;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, c = s.channels;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < s.tokens * c; e += stride) {
    const std::int64_t token = e / c, at = token * s.n() * c + e % c;
    const T *post = maps + token * s.maps() + s.n(), *res = post + s.n();
    T from[kMost] = {};
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (k < s.n()) from[k] = x[at + k * c];
    const T value = y[e];
#pragma unroll
    for (int m = 0; m < kMost; ++m) {
      if (m >= s.n()) break;
      T sum = 0;
#pragma unroll
      for (int k = 0; k < kMost; ++k)
        if (k < s.n()) sum += res[m * s.n() + k] * from[k];
      out[at + m * c] = sum + post[m] * value;
    }
  }
}

enum class Write : std::int64_t { store, add };
/// Nothing without a place.
template <class T>
struct Into {
  T* to;
  Write how;
  Into(T* place, bool accumulate) : to(place), how(accumulate ? Write::add : Write::store) {}
  __device__ void put(std::int64_t at, T value) const {
    if (to != nullptr) to[at] = how == Write::add ? to[at] + value : value;
  }
};

/// A warp per token, a lane per channel: dx_k = pre_k du and the sums dpre_k = du . x_k in one pass.
template <class T, int kN>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    read_backward_kernel(Streams<kN> s, Into<T> dx, T* __restrict__ dmaps, const T* __restrict__ du,
                         const T* __restrict__ x, const T* __restrict__ maps) {
  constexpr int kMost = Streams<kN>::kMost;
  const std::int64_t token = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y, c = s.channels;
  if (token >= s.tokens) return;
  const std::int64_t at = token * s.n() * c;
  T pre[kMost] = {}, sum[kMost] = {};
#pragma unroll
  for (int k = 0; k < kMost; ++k)
    if (k < s.n()) pre[k] = maps[token * s.maps() + k];
  for (std::int64_t channel = threadIdx.x; channel < c; channel += kWarp) {
    const T d = du[token * c + channel];
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= s.n()) break;
      sum[k] += d * x[at + k * c + channel];
      dx.put(at + k * c + channel, pre[k] * d);
    }
  }
  if (dmaps == nullptr) return;
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    if (k >= s.n()) break;
    const T total = warp_reduce(sum[k]);
    if (threadIdx.x == 0) dmaps[token * s.maps() + k] += total;
  }
}

/// A warp per token, a lane per channel: dx, dy and the n + n n sums of the maps' gradient in one pass over dout, x and y.
template <class T, int kN>
__global__ void __launch_bounds__(kWarp* kTokenWarps)
    write_backward_kernel(Streams<kN> s, Into<T> dx, T* __restrict__ dmaps, Into<T> dy, const T* __restrict__ dout,
                          const T* __restrict__ x, const T* __restrict__ maps, const T* __restrict__ y) {
  constexpr int kMost = Streams<kN>::kMost;
  const std::int64_t token = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.y, c = s.channels;
  if (token >= s.tokens) return;
  const std::int64_t at = token * s.n() * c;
  const T *post = maps + token * s.maps() + s.n(), *res = post + s.n();
  T dpost[kMost] = {}, dres[kMost][kMost] = {};
  for (std::int64_t channel = threadIdx.x; channel < c; channel += kWarp) {
    T d[kMost] = {}, by_post = 0;
    const T value = y[token * c + channel];
#pragma unroll
    for (int m = 0; m < kMost; ++m) {
      if (m >= s.n()) break;
      d[m] = dout[at + m * c + channel];
      by_post += post[m] * d[m];
      dpost[m] += d[m] * value;
    }
    dy.put(token * c + channel, by_post);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= s.n()) break;
      const T from = x[at + k * c + channel];
      T by_res = 0;
#pragma unroll
      for (int m = 0; m < kMost; ++m) {
        if (m >= s.n()) break;
        by_res += res[m * s.n() + k] * d[m];
        dres[m][k] += d[m] * from;
      }
      dx.put(at + k * c + channel, by_res);
    }
  }
  if (dmaps == nullptr) return;
  T* to = dmaps + token * s.maps() + s.n();
  const auto finish = [&](int place, T sum) {
    const T total = warp_reduce(sum);
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

Grid warp_per_token(std::int64_t tokens) {
  return {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(tokens, kTokenWarps)),
          .block = dim3(kWarp, kTokenWarps)};
}

}  // namespace

template <class T>
void hyper_read_forward(const Stream& stream, T* u, const T* x, const T* maps, std::int64_t tokens,
                        std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    launch(stream, grid_for(tokens * channels), read_kernel<T, kN>, s, u, x, maps);
  });
}

template <class T>
void hyper_read_backward(const Stream& stream, T* dx, bool accumulate, T* dmaps, const T* du, const T* x, const T* maps,
                         std::int64_t tokens, std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    launch(stream, warp_per_token(tokens), read_backward_kernel<T, kN>, s, Into<T>{dx, accumulate}, dmaps, du, x, maps);
  });
}

template <class T>
void hyper_write_forward(const Stream& stream, T* out, const T* x, const T* maps, const T* y, std::int64_t tokens,
                         std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    launch(stream, grid_for(tokens * channels), write_kernel<T, kN>, s, out, x, maps, y);
  });
}

template <class T>
void hyper_write_backward(const Stream& stream, T* dx, bool accumulate_dx, T* dmaps, T* dy, bool accumulate_dy,
                          const T* dout, const T* x, const T* maps, const T* y, std::int64_t tokens,
                          std::int64_t channels, std::int64_t n) {
  visit_streams(tokens, channels, n, [&]<int kN>(const Streams<kN>& s) {
    launch(stream, warp_per_token(tokens), write_backward_kernel<T, kN>, s, Into<T>{dx, accumulate_dx}, dmaps,
           Into<T>{dy, accumulate_dy}, dout, x, maps, y);
  });
}

template void hyper_read_forward(const Stream&, float*, const float*, const float*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void hyper_read_backward(const Stream&, float*, bool, float*, const float*, const float*, const float*,
                                  std::int64_t, std::int64_t, std::int64_t);
template void hyper_write_forward(const Stream&, float*, const float*, const float*, const float*, std::int64_t,
                                  std::int64_t, std::int64_t);
template void hyper_write_backward(const Stream&, float*, bool, float*, float*, bool, const float*, const float*,
                                   const float*, const float*, std::int64_t, std::int64_t, std::int64_t);
template void hyper_read_forward(const Stream&, double*, const double*, const double*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void hyper_read_backward(const Stream&, double*, bool, double*, const double*, const double*, const double*,
                                  std::int64_t, std::int64_t, std::int64_t);
template void hyper_write_forward(const Stream&, double*, const double*, const double*, const double*, std::int64_t,
                                  std::int64_t, std::int64_t);
template void hyper_write_backward(const Stream&, double*, bool, double*, double*, bool, const double*, const double*,
                                   const double*, const double*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace lockstep::ops::cuda
