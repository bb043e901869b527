// Reading from the streams and writing to them. Each pass reads and writes a token's streams once; its few coefficients
// and the sums of its gradients stay in registers.
#include "hyper_connections_kernels.hpp"
#include "ops/common/map.hpp"

namespace lockstep::ops {

/// A row of these passes is a token; x may hold one of n equal streams. kN is the number of streams if known at compile
/// time, so that values stay in registers; else 0.
namespace hyper {

template <class T, int kN>
struct Read {
  HyperExtents e;
  T* u;
  const T* x;
  const real_t<T>* maps;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const int n = kN > 0 ? kN : static_cast<int>(e.streams);
    const std::int64_t channels = e.channels;
    const real_t<T>* pre = maps + at.row * e.maps;
    const T* from = x + at.row * e.width();
    T* to = u + at.row * channels;
    if (e.equal()) {  // u = (sum_s Hpre_s) x
      real_t<T> all = pre[0];
      for (int s = 1; s < n; ++s) all += pre[s];
      at.put(to, all * at.get(from));
      return;
    }
    auto sum = pre[0] * at.get(from);
    LOCKSTEP_UNROLL
    for (int s = 1; s < n; ++s) sum = at.fma(pre[s], at.get(from + s * channels), sum);
    at.put(to, sum);
  }
};

/// Equal streams stay equal when they mix: X'_m = x + Hpost_m y.
template <class T, int kN>
struct Write {
  static constexpr int kMost = kN > 0 ? kN : static_cast<int>(HyperConnection::kMostStreams);
  HyperExtents e;
  T* out;
  const T* x;
  const real_t<T>* maps;
  const T* y;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const int n = kN > 0 ? kN : static_cast<int>(e.streams);
    const bool equal = e.equal();
    const std::int64_t channels = e.channels;
    const real_t<T>*post = maps + at.row * e.maps + n, *res = post + n;
    const T* from = x + at.row * e.width();
    T* to = out + at.row * n * channels;
    auto of_y = at.get(y + at.row * channels);
    decltype(of_y) streams[kMost];
    LOCKSTEP_UNROLL
    for (int s = 0; s < kMost; ++s) {
      if (s >= n) break;
      streams[s] = at.get(equal ? from : from + s * channels);
    }
    LOCKSTEP_UNROLL
    for (int m = 0; m < kMost; ++m) {
      if (m >= n) break;
      auto sum = equal ? at.fma(post[m], of_y, streams[m]) : post[m] * of_y;
      LOCKSTEP_UNROLL
      for (int s = 0; s < kMost; ++s) {
        if (s >= n || equal) break;
        sum = at.fma(res[m * n + s], streams[s], sum);
      }
      at.put(to + m * channels, sum);
    }
  }
};

template <class T>
using ReadFour = Read<T, 4>;
template <class T>
using ReadAny = Read<T, 0>;
template <class T>
using WriteFour = Write<T, 4>;
template <class T>
using WriteAny = Write<T, 0>;

}  // namespace hyper

LOCKSTEP_MAPS(hyper::ReadFour, hyper::ReadAny, hyper::WriteFour, hyper::WriteAny)

namespace cpu {

/// Targets may be null; those of maps are added to, the others if `add`.
template <class T>
struct HyperStreamKernels {
  void (*write_sum)(const HyperExtents& extents, T* out, const T* x, const T* maps, const T* y);
  void (*read_gradient)(const HyperExtents& extents, T* dx, bool add, T* dmaps, const T* du, const T* x, const T* maps);
  void (*write_gradient)(const HyperExtents& extents, T* dx, bool add_x, T* dy, bool add_y, T* dmaps, const T* dout,
                         const T* x, const T* maps, const T* y);
};

LOCKSTEP_KERNELS(HyperStreamKernels, hyper_stream_kernels)

}  // namespace cpu
}  // namespace lockstep::ops

#ifdef LOCKSTEP_ISA

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// to_i += the sum of the lanes of v_i for i < kCount, in a fixed tree. v is overwritten.
template <int kCount, class T>
LOCKSTEP_INLINE void add_totals(T* to, Vec<T>* v) {
  constexpr int kL = kLanes<T>;
  if constexpr (kCount >= kL) {
    store(to, load(to) + sum_of<kL, T>(v));
    add_totals<kCount - kL, T>(to + kL, v + kL);
  } else if constexpr (kCount >= 4) {
    const Lanes<T> four(4);
    store(to, load(to, four) + sum_of<4, T>(v), four);
    add_totals<kCount - 4, T>(to + 4, v + 4);
  } else if constexpr (kCount > 0) {
    to[0] += total<T>(v[0]);
    add_totals<kCount - 1, T>(to + 1, v + 1);
  }
}

/// kN: the number of streams if known at compile time, so that sums stay in registers; 0: use `streams`.
template <class T, int kN>
struct Streams {
  static constexpr int kMost = kN > 0 ? kN : static_cast<int>(HyperConnection::kMostStreams);
  const int count;
  const std::int64_t channels, width, maps;
  Streams(std::int64_t c, std::int64_t streams, std::int64_t columns)
      : count(static_cast<int>(streams)), channels(c), width(streams * c), maps(columns) {}
  LOCKSTEP_INLINE int streams() const { return kN > 0 ? kN : count; }

  void read_gradient(std::int64_t tokens, T* dx, bool add, T* dmap, const T* du, const T* x, const T* map) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i) {
      Vec<T> sums[kMost] = {};
      for_vectors<T>(
          channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
            const Vec<T> d = get(du);
#pragma GCC unroll 4
            for (int s = 0; s < n; ++s) {
              const std::int64_t from = s * channels;
              if (dx) put(dx + from, fma(splat(map[s]), d, add ? get(dx + from) : Vec<T>{}));
              if (dmap) sums[s] = fma(d, get(x + from), sums[s]);
            }
          });
      if (dmap) {
        add_rows<1>(dmap, sums);
        dmap += maps;
      }
      if (dx) dx += width;
      du += channels;
      x += width;
      map += maps;
    }
  }

  void write_gradient(std::int64_t tokens, T* dx, bool add_x, T* dy, bool add_y, T* dmap, const T* dout, const T* x,
                      const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i) {
      const T *post = map + n, *res = post + n;
      // The gradients of x and y at one vector of channels.
      const auto mix = [&](const Vec<T>* d, const auto& get, const auto& put) __attribute__((always_inline)) {
        if (dx) {
#pragma GCC unroll 4
          for (int s = 0; s < n; ++s) {
            T* to = dx + s * channels;
            Vec<T> sum = add_x ? get(to) : Vec<T>{};
#pragma GCC unroll 4
            for (int m = 0; m < n; ++m) sum = fma(splat(res[m * n + s]), d[m], sum);
            put(to, sum);
          }
        }
        if (dy) {
          Vec<T> sum = add_y ? get(dy) : Vec<T>{};
#pragma GCC unroll 4
          for (int m = 0; m < n; ++m) sum = fma(splat(post[m]), d[m], sum);
          put(dy, sum);
        }
      };
      const auto load_rows = [&](int first, int count, Vec<T>* d, const auto& get) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int m = 0; m < count; ++m) d[m] = get(dout + (first + m) * channels);
      };
      // The sums fill the registers of a wide processor; others add up two targets at a time, and mix first.
      constexpr bool kOnePass = kN > 0 && kVectorRegisters >= kN * (kN + 2) + 4;
      constexpr int kRows = kOnePass ? kN : kN > 0 && kN % 2 == 0 ? 2 : 1;
      if (!kOnePass)
        for_vectors<T>(
            channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
              Vec<T> d[kMost];
              load_rows(0, n, d, get);
              mix(d, get, put);
            });
      for (int first = 0; first < n && (kOnePass || dmap); first += kRows) {
        Vec<T> of_post[kRows] = {}, of_res[kRows * kMost] = {};
        for_vectors<T>(
            channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
              Vec<T> d[kRows];
              load_rows(first, kRows, d, get);
              if (kOnePass) mix(d, get, put);
              if (!dmap) return;
              const Vec<T> of_y = get(y);
#pragma GCC unroll 4
              for (int r = 0; r < kRows; ++r) of_post[r] = fma(d[r], of_y, of_post[r]);
#pragma GCC unroll 4
              for (int s = 0; s < n; ++s) {
                const Vec<T> in = get(x + s * channels);
#pragma GCC unroll 4
                for (int r = 0; r < kRows; ++r) of_res[r * n + s] = fma(d[r], in, of_res[r * n + s]);
              }
            });
        if (!dmap) continue;
        add_totals<kRows, T>(dmap + n + first, of_post);
        add_rows<kRows>(dmap + 2 * n + first * n, of_res);
      }
      if (dx) dx += width;
      if (dy) dy += channels;
      if (dmap) dmap += maps;
      dout += width;
      x += width;
      map += maps;
      y += channels;
    }
  }

  /// Equal streams, of which x holds one.
  void read_equal_gradient(std::int64_t tokens, T* dx, bool add, T* dmap, const T* du, const T* x, const T* map) const {
    for (std::int64_t i = 0; i < tokens; ++i, du += channels, x += channels, map += maps) {
      const Vec<T> factor = splat(sum(map));
      Vec<T> of_pre{};
      for_vectors<T>(
          channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
            const Vec<T> d = get(du);
            of_pre = fma(d, get(x), of_pre);
            if (dx) put(dx, fma(factor, d, add ? get(dx) : Vec<T>{}));
          });
      if (dx) dx += channels;
      if (!dmap) continue;
      const T each = total<T>(of_pre);
      for (int s = 0; s < streams(); ++s) dmap[s] += each;
      dmap += maps;
    }
  }

  void write_equal_gradient(std::int64_t tokens, T* dx, bool add_x, T* dy, bool add_y, T* dmap, const T* dout,
                            const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, dout += width, map += maps, y += channels) {
      Vec<T> of_post[kMost] = {};
      for_vectors<T>(
          channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
            const Vec<T> of_y = get(y);
            Vec<T> to_x = dx && add_x ? get(dx) : Vec<T>{}, to_y = dy && add_y ? get(dy) : Vec<T>{};
#pragma GCC unroll 4
            for (int m = 0; m < n; ++m) {
              const Vec<T> d = get(dout + m * channels);
              of_post[m] = fma(d, of_y, of_post[m]);
              to_x += d;
              to_y = fma(splat(map[n + m]), d, to_y);
            }
            if (dx) put(dx, to_x);
            if (dy) put(dy, to_y);
          });
      if (dx) dx += channels;
      if (dy) dy += channels;
      if (!dmap) continue;
      add_rows<1>(dmap + n, of_post);
      dmap += maps;
    }
  }

  /// The sum of the streams: sum_s (sum_m Hres_ms) X_s + (sum_m Hpost_m) y.
  void write_sum(std::int64_t tokens, T* out, const T* x, const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, out += channels, x += width, map += maps, y += channels) {
      T of_x[kMost];
      sum_targets(of_x, map);
      const Vec<T> of_y = splat(sum(map + n));
      for_vectors<T>(
          channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
            Vec<T> to = of_y * get(y);
#pragma GCC unroll 4
            for (int s = 0; s < n; ++s) to = fma(splat(of_x[s]), get(x + s * channels), to);
            put(out, to);
          });
    }
  }

  void write_sum_gradient(std::int64_t tokens, T* dx, bool add_x, T* dy, bool add_y, T* dmap, const T* dout, const T* x,
                          const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, dout += channels, x += width, map += maps, y += channels) {
      T of_x[kMost];
      sum_targets(of_x, map);
      const Vec<T> of_y = splat(sum(map + n));
      Vec<T> of_post{}, of_res[kMost] = {};
      for_vectors<T>(
          channels, [&](const auto& get, const auto& put) __attribute__((always_inline)) {
            const Vec<T> d = get(dout);
            of_post = fma(d, get(y), of_post);
            if (dy) put(dy, fma(of_y, d, add_y ? get(dy) : Vec<T>{}));
#pragma GCC unroll 4
            for (int s = 0; s < n; ++s) {
              const std::int64_t from = s * channels;
              of_res[s] = fma(d, get(x + from), of_res[s]);
              if (dx) put(dx + from, fma(splat(of_x[s]), d, add_x ? get(dx + from) : Vec<T>{}));
            }
          });
      if (dx) dx += width;
      if (dy) dy += channels;
      if (!dmap) continue;
      T each_res[kMost] = {};
      add_rows<1>(each_res, of_res);
      const T each_post = total<T>(of_post);
      for (int m = 0; m < n; ++m) {
        dmap[n + m] += each_post;
        for (int s = 0; s < n; ++s) dmap[(2 + m) * n + s] += each_res[s];
      }
      dmap += maps;
    }
  }

 private:
  LOCKSTEP_INLINE T sum(const T* of_streams) const {
    T sum = of_streams[0];
    for (int s = 1; s < streams(); ++s) sum += of_streams[s];
    return sum;
  }
  /// to_s = sum_m Hres_ms
  LOCKSTEP_INLINE void sum_targets(T* to, const T* map) const {
    const int n = streams();
    for (int s = 0; s < n; ++s) to[s] = map[2 * n + s];
    for (int m = 1; m < n; ++m)
      for (int s = 0; s < n; ++s) to[s] += map[(2 + m) * n + s];
  }
  template <int kRows>
  LOCKSTEP_INLINE void add_rows(T* to, Vec<T>* sums) const {
    if constexpr (kN > 0) {
      add_totals<kRows * kN, T>(to, sums);
    } else {
      for (int s = 0; s < count; ++s) to[s] += total<T>(sums[s]);
    }
  }
};

/// Calls f with the Streams for this number of streams.
template <class T, class F>
LOCKSTEP_INLINE void with_streams(const HyperExtents& e, const F& f) {
  e.streams == 4 ? f(Streams<T, 4>(e.channels, e.streams, e.maps)) : f(Streams<T, 0>(e.channels, e.streams, e.maps));
}

template <class T>
void write_sum(const HyperExtents& e, T* out, const T* x, const T* maps, const T* y) {
  with_streams<T>(e, [&](const auto& streams) { streams.write_sum(e.tokens, out, x, maps, y); });
}
template <class T>
void read_gradient(const HyperExtents& e, T* dx, bool add, T* dmaps, const T* du, const T* x, const T* maps) {
  with_streams<T>(e, [&](const auto& streams) {
    e.equal() ? streams.read_equal_gradient(e.tokens, dx, add, dmaps, du, x, maps)
              : streams.read_gradient(e.tokens, dx, add, dmaps, du, x, maps);
  });
}
template <class T>
void write_gradient(const HyperExtents& e, T* dx, bool add_x, T* dy, bool add_y, T* dmaps, const T* dout, const T* x,
                    const T* maps, const T* y) {
  with_streams<T>(e, [&](const auto& streams) {
    e.equal()    ? streams.write_equal_gradient(e.tokens, dx, add_x, dy, add_y, dmaps, dout, maps, y)
    : e.summed() ? streams.write_sum_gradient(e.tokens, dx, add_x, dy, add_y, dmaps, dout, x, maps, y)
                 : streams.write_gradient(e.tokens, dx, add_x, dy, add_y, dmaps, dout, x, maps, y);
  });
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(HyperStreamKernels, hyper_stream_kernels, write_sum<T>, read_gradient<T>, write_gradient<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include "lockstep/device/cuda_reduce.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;
using gpu::Pack;

/// A gradient's destination; null: not computed.
template <class T>
struct Into {
  T* to;
  std::int64_t add;  ///< not 0: add. As wide as a pointer, as in ColumnSums
  template <int V>
  __device__ void put(std::int64_t at, const Pack<real_t<T>, V>& value) const {
    if (to != nullptr) gpu::At<V>{0, at}.put(to, value, add != 0);
  }
};

/// One warp per token, V neighbouring channels per lane: dx_k = pre_k du and the sums dpre_k = du . x_k in one pass.
template <class T, int kN, int V>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    read_backward_kernel(gpu::Earlier earlier, HyperExtents e, Into<T> dx, real_t<T>* __restrict__ dmaps,
                         const T* __restrict__ du, const T* __restrict__ x, const real_t<T>* __restrict__ maps) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kMost = hyper::Write<T, kN>::kMost;
  const int n = kN > 0 ? kN : static_cast<int>(e.streams);
  const std::int64_t token = gpu::warp_row(), c = e.channels;
  if (token >= e.tokens) return;
  const std::int64_t at = token * n * c;
  R pre[kMost] = {}, sum[kMost] = {};
#pragma unroll
  for (int k = 0; k < kMost; ++k)
    if (k < n) pre[k] = maps[token * e.maps + k];
  for (std::int64_t channel = V * threadIdx.x; channel < c; channel += V * kWarp) {
    const Pack<R, V> d = gpu::load<V>(du + token * c + channel);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= n) break;
      const Pack<R, V> from = gpu::load<V>(x + at + k * c + channel);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[k] += d.at[v] * from.at[v];
      dx.put(at + k * c + channel, pre[k] * d);
    }
  }
  if (dmaps == nullptr) return;
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    if (k >= n) break;
    const R total = gpu::warp_reduce(sum[k]);
    if (threadIdx.x == 0) dmaps[token * e.maps + k] += total;
  }
}

/// One warp per token, V neighbouring channels per lane: dx, dy and the n + n n sums of the maps' gradient in one pass
/// over dout, x and y.
template <class T, int kN, int V>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    write_backward_kernel(gpu::Earlier earlier, HyperExtents e, Into<T> dx, real_t<T>* __restrict__ dmaps, Into<T> dy,
                          const T* __restrict__ dout, const T* __restrict__ x, const real_t<T>* __restrict__ maps,
                          const T* __restrict__ y) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kMost = hyper::Write<T, kN>::kMost;
  const int n = kN > 0 ? kN : static_cast<int>(e.streams);
  const std::int64_t token = gpu::warp_row(), c = e.channels;
  if (token >= e.tokens) return;
  const std::int64_t at = token * n * c;
  const R *post = maps + token * e.maps + n, *res = post + n;
  R dpost[kMost] = {}, dres[kMost][kMost] = {};
  for (std::int64_t channel = V * threadIdx.x; channel < c; channel += V * kWarp) {
    Pack<R, V> d[kMost] = {}, by_post = {};
    const Pack<R, V> value = gpu::load<V>(y + token * c + channel);
#pragma unroll
    for (int m = 0; m < kMost; ++m) {
      if (m >= n) break;
      d[m] = gpu::load<V>(dout + at + m * c + channel);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        by_post.at[v] += post[m] * d[m].at[v];
        dpost[m] += d[m].at[v] * value.at[v];
      }
    }
    dy.put(token * c + channel, by_post);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= n) break;
      const Pack<R, V> from = gpu::load<V>(x + at + k * c + channel);
      Pack<R, V> by_res = {};
#pragma unroll
      for (int m = 0; m < kMost; ++m) {
        if (m >= n) break;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          by_res.at[v] += res[m * n + k] * d[m].at[v];
          dres[m][k] += d[m].at[v] * from.at[v];
        }
      }
      dx.put(at + k * c + channel, by_res);
    }
  }
  if (dmaps == nullptr) return;
  R* to = dmaps + token * e.maps + n;
  const auto finish = [&](int place, R sum) {
    const R total = gpu::warp_reduce(sum);
    if (threadIdx.x == 0) to[place] += total;
  };
#pragma unroll
  for (int m = 0; m < kMost; ++m) {
    if (m >= n) break;
    finish(m, dpost[m]);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= n) break;
      finish((1 + m) * n + k, dres[m][k]);
    }
  }
}

/// Channels that a lane of a backward kernel holds at once: 4 bytes, so that 64 channels keep a whole warp busy.
template <class T>
constexpr int kLaneChannels = sizeof(T) == 2 ? 2 : 1;

/// kernel_of<kN, V>() for these arrays: V is kLaneChannels<T>, or 1.
template <class T, class F>
auto backward_kernel(const HyperExtents& e, MapArrays arrays, const F& kernel_of) {
  constexpr int V = kLaneChannels<T>;
  if (e.channels % V == 0 && gpu::packable(V, arrays))
    return e.streams == 4 ? kernel_of.template operator()<4, V>() : kernel_of.template operator()<0, V>();
  return e.streams == 4 ? kernel_of.template operator()<4, 1>() : kernel_of.template operator()<0, 1>();
}

/// Runs the functor make<T, kN>() over the channels of all tokens.
template <class Make>
void over_channels(const Stream& stream, const HyperExtents& e, MapArrays arrays, const Make& make) {
  const auto run = [&]<int kN>() {
    map_rows(stream, {e.tokens, e.channels}, arrays, [&]<class T>() { return make.template operator()<T, kN>(); });
  };
  e.streams == 4 ? run.template operator()<4>() : run.template operator()<0>();
}

/// The extents with `out`, which has the n streams or their sum.
HyperExtents extents_of(const char* what, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                        std::int64_t n) {
  HyperExtents e = hyper_extents(what, x, maps, n);
  const std::int64_t size = e.tokens * e.channels;
  if (n > 1 && size > 0 && out.size() == size) e.written = 1;
  require(y.size() == size && (e.summed() ? !e.equal() && !x.device().is_cuda() : out.size() == n * size), what,
          ": the streams are ", x.shape(), ", so the result cannot be ", out.shape(), " or y ", y.shape());
  return e;
}

}  // namespace

void hyper_read_forward(Stream& stream, const Tensor& u, const Tensor& x, const Tensor& maps, std::int64_t n) {
  const HyperExtents e = hyper_extents("hyper_read", x, maps, n);
  require(u.size() == e.tokens * e.channels, "hyper_read: the streams are ", x.shape(), ", so u cannot be ", u.shape());
  over_channels(stream, e, {u, x}, [&]<class T, int kN>() { return hyper::Read<T, kN>{e, u, x, maps}; });
}

void hyper_read_backward(Stream& stream, Target dx, Target dmaps, const Tensor& du, const Tensor& x, const Tensor& maps,
                         std::int64_t n) {
  const HyperExtents e = hyper_extents("hyper_read backward", x, maps, n);
  if (dmaps && !dmaps.accumulate) fill_zero(stream, dmaps.tensor);
  on_gpu(x, [&]<class T>() {
    using R = real_t<T>;
    const auto kernel =
        backward_kernel<T>(e, {dx.tensor, du, x}, [&]<int kN, int V>() { return read_backward_kernel<T, kN, V>; });
    gpu::launch(stream, gpu::warp_per_row(e.tokens), kernel, e, Into<T>{dx.tensor, dx.accumulate},
                dmaps.tensor.data<R>(), du.data<T>(), x.data<T>(), maps.data<R>());
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_hyper_stream_kernels<T>().read_gradient(e, dx.tensor, dx.accumulate, dmaps.tensor, du, x, maps);
  });
}

void hyper_write_forward(Stream& stream, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                         std::int64_t n) {
  const HyperExtents e = extents_of("hyper_write", out, x, maps, y, n);
  if (e.summed())
    on_cpu(x, [&]<class T>() { cpu::active_hyper_stream_kernels<T>().write_sum(e, out, x, maps, y); });
  else
    over_channels(stream, e, {out, x, y}, [&]<class T, int kN>() { return hyper::Write<T, kN>{e, out, x, maps, y}; });
}

void hyper_write_backward(Stream& stream, Target dx, Target dmaps, Target dy, const Tensor& dout, const Tensor& x,
                          const Tensor& maps, const Tensor& y, std::int64_t n) {
  const HyperExtents e = extents_of("hyper_write backward", dout, x, maps, y, n);
  if (dmaps && !dmaps.accumulate) fill_zero(stream, dmaps.tensor);
  on_gpu(x, [&]<class T>() {
    using R = real_t<T>;
    const auto kernel = backward_kernel<T>(e, {dx.tensor, dy.tensor, dout, x, y},
                                           [&]<int kN, int V>() { return write_backward_kernel<T, kN, V>; });
    gpu::launch(stream, gpu::warp_per_row(e.tokens), kernel, e, Into<T>{dx.tensor, dx.accumulate},
                dmaps.tensor.data<R>(), Into<T>{dy.tensor, dy.accumulate}, dout.data<T>(), x.data<T>(), maps.data<R>(),
                y.data<T>());
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_hyper_stream_kernels<T>().write_gradient(e, dx.tensor, dx.accumulate, dy.tensor, dy.accumulate,
                                                         dmaps.tensor, dout, x, maps, y);
  });
}

}  // namespace lockstep::ops
#endif
