// Reading from the streams and writing to them. Each pass reads and writes a token's streams once; its few coefficients
// and the sums of its gradients stay in registers.
#include "hyper_connections_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <int N>
struct Count {
  static constexpr int value = N;
};
/// Loads and stores of whole vectors, and of the last, partial one.
template <class T>
struct Whole {
  LOCKSTEP_INLINE Vec<T> get(const T* p) const { return load(p); }
  LOCKSTEP_INLINE void put(T* p, Vec<T> v) const { store(p, v); }
};
template <class T>
struct Partial {
  Lanes<T> lanes;
  LOCKSTEP_INLINE Vec<T> get(const T* p) const { return load(p, lanes); }
  LOCKSTEP_INLINE void put(T* p, Vec<T> v) const { store(p, v, lanes); }
};

/// Calls f(first channel, vectors, access) for blocks of up to kMost vectors.
template <class T, int kMost, class F>
LOCKSTEP_INLINE void each_block(std::int64_t channels, const F& f) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t c = 0;
  for (; c + kMost * kL <= channels; c += kMost * kL) f(c, Count<kMost>{}, Whole<T>{});
  if constexpr (kMost > 1)
    for (; c + kL <= channels; c += kL) f(c, Count<1>{}, Whole<T>{});
  if (c < channels) f(c, Count<1>{}, Partial<T>{Lanes<T>(channels - c)});
}

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

  void read(std::int64_t tokens, T* u, const T* x, const T* map) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, u += channels, x += width, map += maps)
      each_block<T, 2>(
          channels, [&](std::int64_t c, auto vectors, const auto& at) __attribute__((always_inline)) {
            for (int v = 0; v < vectors.value; ++v) {
              const std::int64_t from = c + v * kLanes<T>;
              Vec<T> sum = splat(map[0]) * at.get(x + from);
#pragma GCC unroll 4
              for (int s = 1; s < n; ++s) sum = fma(splat(map[s]), at.get(x + s * channels + from), sum);
              at.put(u + from, sum);
            }
          });
  }

  void read_gradient(std::int64_t tokens, T* dx, bool add, T* dmap, const T* du, const T* x, const T* map) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i) {
      Vec<T> sums[kMost] = {};
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
            const Vec<T> d = at.get(du + c);
#pragma GCC unroll 4
            for (int s = 0; s < n; ++s) {
              const std::int64_t from = s * channels + c;
              if (dx) at.put(dx + from, fma(splat(map[s]), d, add ? at.get(dx + from) : Vec<T>{}));
              if (dmap) sums[s] = fma(d, at.get(x + from), sums[s]);
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

  void write(std::int64_t tokens, T* out, const T* x, const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, out += width, x += width, map += maps, y += channels) {
      const T *post = map + n, *res = post + n;
      each_block<T, 2>(
          channels, [&](std::int64_t c, auto vectors, const auto& at) __attribute__((always_inline)) {
            constexpr int kV = decltype(vectors)::value;
            Vec<T> in[kMost][kV], of_y[kV];
#pragma GCC unroll 2
            for (int v = 0; v < kV; ++v) {
              of_y[v] = at.get(y + c + v * kLanes<T>);
#pragma GCC unroll 4
              for (int s = 0; s < n; ++s) in[s][v] = at.get(x + s * channels + c + v * kLanes<T>);
            }
#pragma GCC unroll 4
            for (int m = 0; m < n; ++m) {
              Vec<T> sum[kV];
#pragma GCC unroll 2
              for (int v = 0; v < kV; ++v) sum[v] = splat(post[m]) * of_y[v];
#pragma GCC unroll 4
              for (int s = 0; s < n; ++s) {
                const Vec<T> factor = splat(res[m * n + s]);
#pragma GCC unroll 2
                for (int v = 0; v < kV; ++v) sum[v] = fma(factor, in[s][v], sum[v]);
              }
#pragma GCC unroll 2
              for (int v = 0; v < kV; ++v) at.put(out + m * channels + c + v * kLanes<T>, sum[v]);
            }
          });
    }
  }

  void write_gradient(std::int64_t tokens, T* dx, bool add_x, T* dy, bool add_y, T* dmap, const T* dout, const T* x,
                      const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i) {
      const T *post = map + n, *res = post + n;
      // The gradients of x and y at one vector of channels.
      const auto mix = [&](std::int64_t c, const Vec<T>* d, const auto& at) __attribute__((always_inline)) {
        if (dx) {
#pragma GCC unroll 4
          for (int s = 0; s < n; ++s) {
            T* to = dx + s * channels + c;
            Vec<T> sum = add_x ? at.get(to) : Vec<T>{};
#pragma GCC unroll 4
            for (int m = 0; m < n; ++m) sum = fma(splat(res[m * n + s]), d[m], sum);
            at.put(to, sum);
          }
        }
        if (dy) {
          Vec<T> sum = add_y ? at.get(dy + c) : Vec<T>{};
#pragma GCC unroll 4
          for (int m = 0; m < n; ++m) sum = fma(splat(post[m]), d[m], sum);
          at.put(dy + c, sum);
        }
      };
      const auto load_rows = [&](std::int64_t c, int first, int count, Vec<T>* d, const auto& at)
          __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int m = 0; m < count; ++m) d[m] = at.get(dout + (first + m) * channels + c);
      };
      // The sums fill the registers of a wide processor; others add up two targets at a time, and mix first.
      constexpr bool kOnePass = kN > 0 && kVectorRegisters >= kN * (kN + 2) + 4;
      constexpr int kRows = kOnePass ? kN : kN > 0 && kN % 2 == 0 ? 2 : 1;
      if (!kOnePass)
        each_block<T, 1>(
            channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
              Vec<T> d[kMost];
              load_rows(c, 0, n, d, at);
              mix(c, d, at);
            });
      for (int first = 0; first < n && (kOnePass || dmap); first += kRows) {
        Vec<T> of_post[kRows] = {}, of_res[kRows * kMost] = {};
        each_block<T, 1>(
            channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
              Vec<T> d[kRows];
              load_rows(c, first, kRows, d, at);
              if (kOnePass) mix(c, d, at);
              if (!dmap) return;
              const Vec<T> of_y = at.get(y + c);
#pragma GCC unroll 4
              for (int r = 0; r < kRows; ++r) of_post[r] = fma(d[r], of_y, of_post[r]);
#pragma GCC unroll 4
              for (int s = 0; s < n; ++s) {
                const Vec<T> in = at.get(x + s * channels + c);
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

  /// Equal streams, of which x holds one: u = (sum_s Hpre_s) x.
  void read_equal(std::int64_t tokens, T* u, const T* x, const T* map) const {
    for (std::int64_t i = 0; i < tokens; ++i, u += channels, x += channels, map += maps) {
      const Vec<T> factor = splat(sum(map));
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at)
                        __attribute__((always_inline)) { at.put(u + c, factor * at.get(x + c)); });
    }
  }

  void read_equal_gradient(std::int64_t tokens, T* dx, bool add, T* dmap, const T* du, const T* x, const T* map) const {
    for (std::int64_t i = 0; i < tokens; ++i, du += channels, x += channels, map += maps) {
      const Vec<T> factor = splat(sum(map));
      Vec<T> of_pre{};
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
            const Vec<T> d = at.get(du + c);
            of_pre = fma(d, at.get(x + c), of_pre);
            if (dx) at.put(dx + c, fma(factor, d, add ? at.get(dx + c) : Vec<T>{}));
          });
      if (dx) dx += channels;
      if (!dmap) continue;
      const T each = total<T>(of_pre);
      for (int s = 0; s < streams(); ++s) dmap[s] += each;
      dmap += maps;
    }
  }

  /// Equal streams, of which x holds one, stay equal when they mix: X'_m = x + Hpost_m y.
  void write_equal(std::int64_t tokens, T* out, const T* x, const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, out += width, x += channels, map += maps, y += channels)
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
            const Vec<T> in = at.get(x + c), of_y = at.get(y + c);
#pragma GCC unroll 4
            for (int m = 0; m < n; ++m) at.put(out + m * channels + c, fma(splat(map[n + m]), of_y, in));
          });
  }

  void write_equal_gradient(std::int64_t tokens, T* dx, bool add_x, T* dy, bool add_y, T* dmap, const T* dout,
                            const T* map, const T* y) const {
    const int n = streams();
    for (std::int64_t i = 0; i < tokens; ++i, dout += width, map += maps, y += channels) {
      Vec<T> of_post[kMost] = {};
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
            const Vec<T> of_y = at.get(y + c);
            Vec<T> to_x = dx && add_x ? at.get(dx + c) : Vec<T>{}, to_y = dy && add_y ? at.get(dy + c) : Vec<T>{};
#pragma GCC unroll 4
            for (int m = 0; m < n; ++m) {
              const Vec<T> d = at.get(dout + m * channels + c);
              of_post[m] = fma(d, of_y, of_post[m]);
              to_x += d;
              to_y = fma(splat(map[n + m]), d, to_y);
            }
            if (dx) at.put(dx + c, to_x);
            if (dy) at.put(dy + c, to_y);
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
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
            Vec<T> to = of_y * at.get(y + c);
#pragma GCC unroll 4
            for (int s = 0; s < n; ++s) to = fma(splat(of_x[s]), at.get(x + s * channels + c), to);
            at.put(out + c, to);
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
      each_block<T, 1>(
          channels, [&](std::int64_t c, auto, const auto& at) __attribute__((always_inline)) {
            const Vec<T> d = at.get(dout + c);
            of_post = fma(d, at.get(y + c), of_post);
            if (dy) at.put(dy + c, fma(of_y, d, add_y ? at.get(dy + c) : Vec<T>{}));
#pragma GCC unroll 4
            for (int s = 0; s < n; ++s) {
              const std::int64_t from = s * channels + c;
              of_res[s] = fma(d, at.get(x + from), of_res[s]);
              if (dx) at.put(dx + from, fma(splat(of_x[s]), d, add_x ? at.get(dx + from) : Vec<T>{}));
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
void read(const HyperExtents& e, T* u, const T* x, const T* maps) {
  with_streams<T>(e, [&](const auto& streams) {
    e.equal ? streams.read_equal(e.tokens, u, x, maps) : streams.read(e.tokens, u, x, maps);
  });
}
template <class T>
void read_gradient(const HyperExtents& e, T* dx, bool add, T* dmaps, const T* du, const T* x, const T* maps) {
  with_streams<T>(e, [&](const auto& streams) {
    e.equal ? streams.read_equal_gradient(e.tokens, dx, add, dmaps, du, x, maps)
            : streams.read_gradient(e.tokens, dx, add, dmaps, du, x, maps);
  });
}
template <class T>
void write(const HyperExtents& e, T* out, const T* x, const T* maps, const T* y) {
  with_streams<T>(e, [&](const auto& streams) {
    e.equal    ? streams.write_equal(e.tokens, out, x, maps, y)
    : e.summed ? streams.write_sum(e.tokens, out, x, maps, y)
               : streams.write(e.tokens, out, x, maps, y);
  });
}
template <class T>
void write_gradient(const HyperExtents& e, T* dx, bool add_x, T* dy, bool add_y, T* dmaps, const T* dout, const T* x,
                    const T* maps, const T* y) {
  with_streams<T>(e, [&](const auto& streams) {
    e.equal    ? streams.write_equal_gradient(e.tokens, dx, add_x, dy, add_y, dmaps, dout, maps, y)
    : e.summed ? streams.write_sum_gradient(e.tokens, dx, add_x, dy, add_y, dmaps, dout, x, maps, y)
               : streams.write_gradient(e.tokens, dx, add_x, dy, add_y, dmaps, dout, x, maps, y);
  });
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(HyperStreamKernels, hyper_stream_kernels, read<T>, read_gradient<T>, write<T>, write_gradient<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
