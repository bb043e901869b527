#include "hyper_connections_kernels.hpp"
#include "ops/common/vecmath.hpp"
#include "sinkhorn.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

constexpr int kMostStreams = static_cast<int>(HyperConnection::kMostStreams);
constexpr int kMostSteps = static_cast<int>(HyperConnection::kMostSteps);

LOCKSTEP_INLINE float root(float x) { return __builtin_sqrtf(x); }
LOCKSTEP_INLINE double root(double x) { return __builtin_sqrt(x); }

template <class T>
LOCKSTEP_INLINE Vec<T> sigmoid(Vec<T> x) {
  return splat(T{1}) / (splat(T{1}) + exp(-x));
}

/// Element k of each of `count` tokens as one vector, and the reverse.
template <class T>
LOCKSTEP_INLINE Vec<T> gather(const T* rows, std::int64_t stride, std::int64_t k, std::int64_t count) {
  Vec<T> v{};
  for (std::int64_t l = 0; l < count; ++l) v[l] = rows[l * stride + k];
  return v;
}
template <class T>
LOCKSTEP_INLINE void scatter(T* rows, std::int64_t stride, std::int64_t k, std::int64_t count, Vec<T> v) {
  for (std::int64_t l = 0; l < count; ++l) rows[l * stride + k] = v[l];
}

template <class T>
LOCKSTEP_INLINE Vec<T> clamped(Vec<T> z) {
  return max(splat(T{-10}), min(splat(T{10}), z));
}

/// The `size` numbers of each of up to kLanes tokens, number by number: element k of all tokens is one vector. The
/// numbers of kN > 0 streams are transposed in registers.
template <class T, int kN>
class Tokens {
 public:
  Tokens(const T* rows, std::int64_t size, std::int64_t count) : rows_(rows), size_(size), count_(count) {
    if constexpr (kN > 0) {
      for (int first = 0; first < kSize; first += kL) {
        const Lanes<T> lanes(kSize - first < kL ? kSize - first : kL);
        Vec<T> v[kL];
#pragma GCC unroll 16
        for (int l = 0; l < kL; ++l) v[l] = l < count ? load(rows + l * kSize + first, lanes) : Vec<T>{};
        transpose<T>(v);
#pragma GCC unroll 16
        for (int l = 0; l < kL; ++l) columns_[first + l] = v[l];
      }
    }
  }
  LOCKSTEP_INLINE Vec<T> operator[](std::int64_t k) const {
    if constexpr (kN > 0)
      return columns_[k];
    else
      return gather(rows_, size_, k, count_);
  }
  /// Sets number k of all tokens in `rows`: at once, or (kN > 0) in store_all().
  LOCKSTEP_INLINE void set(T* rows, std::int64_t k, Vec<T> v) {
    if constexpr (kN > 0)
      columns_[k] = v;
    else
      scatter(rows, size_, k, count_, v);
  }
  LOCKSTEP_INLINE void store_all(T* rows) const {
    if constexpr (kN > 0) {
      for (int first = 0; first < kSize; first += kL) {
        const Lanes<T> lanes(kSize - first < kL ? kSize - first : kL);
        Vec<T> v[kL];
#pragma GCC unroll 16
        for (int l = 0; l < kL; ++l) v[l] = columns_[first + l];
        transpose<T>(v);
#pragma GCC unroll 16
        for (int l = 0; l < kL; ++l)
          if (l < count_) store(rows + l * kSize + first, v[l], lanes);
      }
    }
  }

 private:
  static constexpr int kL = kLanes<T>, kSize = kN * (2 + kN);
  const T* rows_;
  std::int64_t size_, count_;
  Vec<T> columns_[kN > 0 ? (kSize + kL - 1) / kL* kL : 1];
};

template <class T, int kN>
void maps_of(std::int64_t tokens, T* maps, const T* raw, const HyperGates<T>& g) {
  const int n = kN > 0 ? kN : static_cast<int>(g.streams);
  const std::int64_t k = n * (2 + n);
  for (std::int64_t i = 0; i < tokens; i += kLanes<T>, raw += kLanes<T> * k, maps += kLanes<T> * k) {
    const std::int64_t count = tokens - i < kLanes<T> ? tokens - i : kLanes<T>;
    Tokens<T, kN> numbers(raw, k, count);
    Sinkhorn<T, kN> res;
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b)
        res.m[a][b] = exp(clamped<T>(fma(splat(g.alpha[2]), numbers[(2 + a) * n + b], splat(g.bias[2][a * n + b]))));
    for (std::int64_t step = 0; step < g.steps; ++step) {
      res.template divide<true>(n, nullptr);
      res.template divide<false>(n, nullptr);
    }
    for (int s = 0; s < n; ++s) {
      const Vec<T> pre = fma(splat(g.alpha[0]), numbers[s], splat(g.bias[0][s]));
      const Vec<T> post = fma(splat(g.alpha[1]), numbers[n + s], splat(g.bias[1][s]));
      numbers.set(maps, s, sigmoid<T>(pre));
      numbers.set(maps, n + s, splat(T{2}) * sigmoid<T>(post));
    }
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) numbers.set(maps, (2 + a) * n + b, res.m[a][b]);
    numbers.store_all(maps);
  }
}

template <class T, int kN>
void gradient_of(std::int64_t tokens, T* dmaps, T* sums, const T* raw, const HyperGates<T>& g) {
  const int n = kN > 0 ? kN : static_cast<int>(g.streams);
  const std::int64_t k = n * (2 + n);
  Vec<T> lane_sums[3 + kMostStreams * (2 + kMostStreams)] = {};  // as `sums`, for each lane
  for (std::int64_t i = 0; i < tokens; i += kLanes<T>, raw += kLanes<T> * k, dmaps += kLanes<T> * k) {
    const std::int64_t count = tokens - i < kLanes<T> ? tokens - i : kLanes<T>;
    const Tokens<T, kN> numbers(raw, k, count);
    Tokens<T, kN> gradients(dmaps, k, count);
    /// From the gradient of z = alpha raw + bias, computes those of alpha, bias and raw.
    const auto finish = [&](int which, std::int64_t column, Vec<T> dz) {
      lane_sums[which] = fma(dz, numbers[column], lane_sums[which]);
      lane_sums[3 + column] += dz;
      gradients.set(dmaps, column, dz * splat(g.alpha[which]));
    };
    for (int s = 0; s < n; ++s) {
      for (const int which : {0, 1}) {
        const std::int64_t column = which * n + s;
        const Vec<T> y = sigmoid<T>(fma(splat(g.alpha[which]), numbers[column], splat(g.bias[which][s])));
        finish(which, column, gradients[column] * y * (splat(T{1}) - y) * splat(static_cast<T>(which + 1)));
      }
    }
    Sinkhorn<T, kN> res, gradient;
    Vec<T> column_sums[kMostSteps][Sinkhorn<T, kN>::kMost], row_sums[kMostSteps][Sinkhorn<T, kN>::kMost];
    const auto z_of = [&](int a, int b) {
      return fma(splat(g.alpha[2]), numbers[(2 + a) * n + b], splat(g.bias[2][a * n + b]));
    };
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) {
        res.m[a][b] = exp(clamped<T>(z_of(a, b)));
        gradient.m[a][b] = gradients[(2 + a) * n + b];
      }
    for (std::int64_t step = 0; step < g.steps; ++step) {
      res.template divide<true>(n, column_sums[step]);
      res.template divide<false>(n, row_sums[step]);
    }
    for (std::int64_t step = g.steps - 1; step >= 0; --step) {
      res.template undo<false>(n, gradient, row_sums[step]);
      res.template undo<true>(n, gradient, column_sums[step]);
    }
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) {
        const Vec<T> z = z_of(a, b), inside = (z > splat(T{10}) || z < splat(T{-10})) ? Vec<T>{} : splat(T{1});
        finish(2, (2 + a) * n + b, gradient.m[a][b] * exp(clamped<T>(z)) * inside);
      }
    gradients.store_all(dmaps);
  }
  for (std::int64_t s = 0; s < 3 + k; ++s) sums[s] += total<T>(lane_sums[s]);
}

/// Calls f(offset, lanes) for each vector of n elements; the last one may be partial.
template <class T, class F>
LOCKSTEP_INLINE void each_vector(std::int64_t n, const F& f) {
  for (std::int64_t c = 0; c < n; c += kLanes<T>) f(c, Lanes<T>(n - c < kLanes<T> ? n - c : kLanes<T>));
}

template <class T>
void maps(std::int64_t tokens, std::int64_t width, T* maps, T* raw, T* scale, const T* x, T eps,
          const HyperGates<T>& g) {
  const std::int64_t k = g.streams * (2 + g.streams);
  for (std::int64_t i = 0; i < tokens; ++i, x += width) {
    Vec<T> squares{};
    each_vector<T>(width, [&](std::int64_t c, Lanes<T> lanes) {
      const Vec<T> v = load(x + c, lanes);
      squares = fma(v, v, squares);
    });
    scale[i] = 1 / root(total<T>(squares) / static_cast<T>(width) + eps);
    T* row = raw + i * k;
    each_vector<T>(
        k, [&](std::int64_t c, Lanes<T> lanes) { store(row + c, load(row + c, lanes) * splat(scale[i]), lanes); });
  }
  g.streams == 4 ? maps_of<T, 4>(tokens, maps, raw, g) : maps_of<T, 0>(tokens, maps, raw, g);
}

template <class T>
void maps_gradient(std::int64_t tokens, T* dmaps, T* sums, const T* raw, const HyperGates<T>& g) {
  g.streams == 4 ? gradient_of<T, 4>(tokens, dmaps, sums, raw, g) : gradient_of<T, 0>(tokens, dmaps, sums, raw, g);
}

template <class T>
void scale_gradient(std::int64_t tokens, std::int64_t width, std::int64_t maps, T* dx, T* dmaps, const T* raw,
                    const T* scale, const T* x) {
  for (std::int64_t i = 0; i < tokens; ++i, dmaps += maps, raw += maps, x += width) {
    Vec<T> product{};
    each_vector<T>(maps, [&](std::int64_t k, Lanes<T> lanes) {
      const Vec<T> d = load(dmaps + k, lanes);
      product = fma(d, load(raw + k, lanes), product);
      store(dmaps + k, d * splat(scale[i]), lanes);
    });
    if (!dx) continue;
    const Vec<T> factor = splat(-scale[i] * scale[i] * total<T>(product) / static_cast<T>(width));
    each_vector<T>(width, [&](std::int64_t c, Lanes<T> lanes) {
      store(dx + c, fma(factor, load(x + c, lanes), load(dx + c, lanes)), lanes);
    });
    dx += width;
  }
}

/// NV vectors of each of a token's streams: out_m (+)= sum_s maps_ms in_s.
template <class T, int kTargets, int kSources, int NV, class Load, class Store>
LOCKSTEP_INLINE void mix_vectors(int targets, int sources, T* out, const T* in, std::int64_t channels, const T* maps,
                                 std::int64_t by_target, std::int64_t by_source, bool add, const Load& get,
                                 const Store& put) {
  const int n_targets = kTargets > 0 ? kTargets : targets, n_sources = kSources > 0 ? kSources : sources;
  Vec<T> x[kSources > 0 ? kSources : kMostStreams][NV];
#pragma GCC unroll 4
  for (int s = 0; s < n_sources; ++s)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) x[s][v] = get(in + s * channels + v * kLanes<T>);
#pragma GCC unroll 4
  for (int m = 0; m < n_targets; ++m) {
    T* to = out + m * channels;
    Vec<T> sum[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) sum[v] = add ? get(to + v * kLanes<T>) : Vec<T>{};
#pragma GCC unroll 4
    for (int s = 0; s < n_sources; ++s) {
      const Vec<T> factor = splat(maps[m * by_target + s * by_source]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) sum[v] = fma(factor, x[s][v], sum[v]);
    }
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) put(to + v * kLanes<T>, sum[v]);
  }
}

/// kTargets, kSources: the extents if known at compile time, so that a token's values stay in registers; 0: use the
/// arguments.
template <class T, int kTargets, int kSources>
void mix_of(std::int64_t tokens, std::int64_t channels, int targets, int sources, T* out, const T* in, const T* maps,
            std::int64_t maps_stride, std::int64_t by_target, std::int64_t by_source, bool add) {
  constexpr std::int64_t kL = kLanes<T>;
  const auto whole = [](const T* at) { return load(at); };
  const auto store_whole = [](T* at, Vec<T> v) { store(at, v); };
  for (std::int64_t i = 0; i < tokens; ++i, out += targets * channels, in += sources * channels, maps += maps_stride) {
    std::int64_t c = 0;
    for (; c + 2 * kL <= channels; c += 2 * kL)
      mix_vectors<T, kTargets, kSources, 2>(targets, sources, out + c, in + c, channels, maps, by_target, by_source,
                                            add, whole, store_whole);
    for (; c < channels; c += kL) {
      if (channels - c >= kL) {
        mix_vectors<T, kTargets, kSources, 1>(targets, sources, out + c, in + c, channels, maps, by_target, by_source,
                                              add, whole, store_whole);
        continue;
      }
      const Lanes<T> lanes(channels - c);
      mix_vectors<T, kTargets, kSources, 1>(
          targets, sources, out + c, in + c, channels, maps, by_target, by_source, add,
          [&](const T* at) { return load(at, lanes); }, [&](T* at, Vec<T> v) { store(at, v, lanes); });
    }
  }
}

template <class T>
void mix(std::int64_t tokens, std::int64_t channels, std::int64_t targets, std::int64_t sources, T* out, const T* in,
         const T* maps, std::int64_t maps_stride, std::int64_t by_target, std::int64_t by_source, bool add) {
  const auto with = targets == 4 && sources == 4   ? mix_of<T, 4, 4>
                    : targets == 4 && sources == 1 ? mix_of<T, 4, 1>
                    : targets == 1 && sources == 4 ? mix_of<T, 1, 4>
                                                   : mix_of<T, 0, 0>;
  with(tokens, channels, static_cast<int>(targets), static_cast<int>(sources), out, in, maps, maps_stride, by_target,
       by_source, add);
}

/// kSources: as in mix_of. kRows targets are computed at a time, so that their sums fill one vector: kRows kSources <=
/// kLanes.
template <class T, int kRows, int kSources>
void products_of(std::int64_t tokens, std::int64_t channels, std::int64_t targets, T* dmaps, std::int64_t maps_stride,
                 const T* a, const T* b) {
  constexpr std::int64_t kL = kLanes<T>;
  constexpr int kSums = kRows * kSources;
  for (std::int64_t i = 0; i < tokens; ++i, a += targets * channels, b += kSources * channels, dmaps += maps_stride)
    for (std::int64_t m = 0; m < targets; m += kRows) {
      Vec<T> sums[kL] = {};
      const auto step = [&](std::int64_t c, const auto& get) {
        Vec<T> v[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) v[r] = get(a + (m + r) * channels + c);
#pragma GCC unroll 4
        for (int s = 0; s < kSources; ++s) {
          const Vec<T> w = get(b + s * channels + c);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) sums[r * kSources + s] = fma(v[r], w, sums[r * kSources + s]);
        }
      };
      std::int64_t c = 0;
      for (; c + kL <= channels; c += kL) step(c, [](const T* at) { return load(at); });
      if (const Lanes<T> lanes(channels - c); c < channels) step(c, [&](const T* at) { return load(at, lanes); });
      if constexpr (kSums > 1) {
        const Vec<T> each = sum_each<T>(sums);
        for (int k = 0; k < kSums; ++k) dmaps[m * kSources + k] += each[k];
      } else {
        dmaps[m] += total<T>(sums[0]);
      }
    }
}

template <class T>
void products(std::int64_t tokens, std::int64_t channels, std::int64_t targets, std::int64_t sources, T* dmaps,
              std::int64_t maps_stride, const T* a, const T* b) {
  constexpr std::int64_t kL = kLanes<T>;
  if constexpr (kL >= 4) {
    if (sources == 4 && targets % 2 == 0 && kL >= 8)
      return products_of < T, kL >= 8 ? 2 : 1, 4 > (tokens, channels, targets, dmaps, maps_stride, a, b);
    if (sources == 4) return products_of<T, 1, 4>(tokens, channels, targets, dmaps, maps_stride, a, b);
    if (sources == 1 && targets == 4) return products_of<T, 4, 1>(tokens, channels, targets, dmaps, maps_stride, a, b);
  }
  for (std::int64_t i = 0; i < tokens; ++i, a += targets * channels, b += sources * channels, dmaps += maps_stride)
    for (std::int64_t m = 0; m < targets; ++m)
      for (std::int64_t s = 0; s < sources; ++s) {
        Vec<T> sum{};
        for (std::int64_t c = 0; c < channels; c += kL) {
          const Lanes<T> lanes(channels - c < kL ? channels - c : kL);
          sum = fma(load(a + m * channels + c, lanes), load(b + s * channels + c, lanes), sum);
        }
        dmaps[m * sources + s] += total<T>(sum);
      }
}

}  // namespace

template <class T>
const HyperKernels<T>& hyper_kernels() {
  static constexpr HyperKernels<T> kKernels = {maps<T>, maps_gradient<T>, scale_gradient<T>, mix<T>, products<T>};
  return kKernels;
}
LOCKSTEP_EACH_FLOAT(hyper_kernels)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
