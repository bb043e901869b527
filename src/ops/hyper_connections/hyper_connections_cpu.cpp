// The maps of each token: gates, Sinkhorn's iteration, and their gradients.
#include "hyper_connections_kernels.hpp"
#include "ops/common/vecmath.hpp"
#include "ops/gemm/gemm_tile.hpp"
#include "sinkhorn.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

constexpr int kMostStreams = static_cast<int>(HyperConnection::kMostStreams);
constexpr int kMostSteps = static_cast<int>(HyperConnection::kMostSteps);

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

/// The number of maps of kN streams.
template <int kN, bool kMixes>
constexpr int kMapsOf = kN*(kMixes ? 2 + kN : 2);

/// The `size` numbers of each of up to kLanes tokens, number by number: element k of all tokens is one vector. kSize >
/// 0 numbers are transposed in registers.
template <class T, int kSize>
class Tokens {
 public:
  LOCKSTEP_INLINE void read(const T* rows, std::int64_t size, std::int64_t count) {
    rows_ = rows;
    size_ = size;
    count_ = count;
    if constexpr (kSize > 0) {
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
    if constexpr (kSize > 0)
      return columns_[k];
    else
      return gather(rows_, size_, k, count_);
  }
  /// Sets number k of all tokens in `rows`: at once, or (kSize > 0) in store_all().
  LOCKSTEP_INLINE void set(T* rows, std::int64_t k, Vec<T> v) {
    if constexpr (kSize > 0)
      columns_[k] = v;
    else
      scatter(rows, size_, k, count_, v);
  }
  LOCKSTEP_INLINE void store_all(T* rows) const {
    if constexpr (kSize > 0) {
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
  static constexpr int kL = kLanes<T>;
  const T* rows_;
  std::int64_t size_, count_;
  Vec<T> columns_[kSize > 0 ? (kSize + kL - 1) / kL* kL : 1];
};

/// Groups of kLanes tokens whose iterations are interleaved, because half a step waits long for its divisions.
template <int kN>
constexpr int kMostGroups = kN > 0 ? 2 : 1;

/// Calls f(groups, first token) for all tokens.
template <class T, int kN, class F>
LOCKSTEP_INLINE void each_groups(std::int64_t tokens, const F& f) {
  std::int64_t i = 0;
  if constexpr (kMostGroups<kN> == 2)
    for (; tokens - i > kLanes<T>; i += 2 * kLanes<T>) f.template operator()<2>(i);
  for (; i < tokens; i += kLanes<T>) f.template operator()<1>(i);
}
template <class T>
LOCKSTEP_INLINE std::int64_t count_from(std::int64_t first, std::int64_t tokens) {
  return tokens - first < kLanes<T> ? tokens - first : kLanes<T>;
}

/// Calls f<streams if known at compile time, else 0; whether the gates mix>().
template <class T, class F>
LOCKSTEP_INLINE void with_streams(const HyperGates<T>& g, const F& f) {
  if (g.streams == 4)
    g.mixes ? f.template operator()<4, true>() : f.template operator()<4, false>();
  else
    g.mixes ? f.template operator()<0, true>() : f.template operator()<0, false>();
}

template <class T>
LOCKSTEP_INLINE Vec<T> res_logit(const HyperGates<T>& g, std::int64_t cell, Vec<T> raw) {
  return fma(splat(g.alpha[2]), raw, splat(g.bias[2][cell]));
}

/// The maps of kGroups groups of tokens from token i.
template <class T, int kN, bool kMixes, int kGroups>
void maps_of(std::int64_t i, std::int64_t tokens, T* maps, const T* raw, const HyperGates<T>& g) {
  const int n = kN > 0 ? kN : static_cast<int>(g.streams);
  const std::int64_t k = g.maps();
  Tokens<T, kMapsOf<kN, kMixes>> numbers[kGroups];
  Sinkhorn<T, kN> res[kGroups];
  typename Sinkhorn<T, kN>::Factors f[kGroups];
  for (int group = 0; group < kGroups; ++group) {
    const std::int64_t first = i + group * kLanes<T>;
    numbers[group].read(raw + first * k, k, count_from<T>(first, tokens));
    for (int a = 0; kMixes && a < n; ++a) {
      f[group].row[a] = f[group].column[a] = splat(T{1});
      for (int b = 0; b < n; ++b)
        res[group].k[a][b] = exp(clamped<T>(res_logit(g, a * n + b, numbers[group][(2 + a) * n + b])));
    }
  }
  for (std::int64_t step = 0; kMixes && step < g.steps; ++step)
#pragma GCC unroll 2
    for (int group = 0; group < kGroups; ++group) res[group].step(n, f[group], f[group].row);
  for (int group = 0; group < kGroups; ++group) {
    auto& own = numbers[group];
    T* to = maps + (i + group * kLanes<T>)*k;
    for (int s = 0; s < n; ++s) {
      const Vec<T> pre = fma(splat(g.alpha[0]), own[s], splat(g.bias[0][s]));
      const Vec<T> post = fma(splat(g.alpha[1]), own[n + s], splat(g.bias[1][s]));
      own.set(to, s, sigmoid<T>(pre));
      own.set(to, n + s, splat(T{2}) * sigmoid<T>(post));
    }
    for (int a = 0; kMixes && a < n; ++a)
      for (int b = 0; b < n; ++b)
        own.set(to, (2 + a) * n + b, res[group].k[a][b] * f[group].column[b] * f[group].row[a]);
    own.store_all(to);
  }
}

/// The gradient through Sinkhorn's iteration of one group of tokens. Recomputes and stores the factors of all steps. On
/// the way back only factors change; the gradients of K are summed at the end.
template <class T, int kN>
class SinkhornGradient {
 public:
  LOCKSTEP_INLINE void begin(int n) {
    for (int a = 0; a < n; ++a) factors_[0].row[a] = splat(T{1});
  }
  LOCKSTEP_INLINE void step(int n, std::int64_t step) { matrix.step(n, factors_[step + 1], factors_[step].row); }
  /// From the gradient of the result after `steps` steps.
  LOCKSTEP_INLINE void begin_back(int n, std::int64_t steps) {
    const auto& f = factors_[steps];
    for (int a = 0; a < n; ++a) drow_[a] = dcolumn_[a] = Vec<T>{};
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) {
        const Vec<T> d = gradient[a][b] * matrix.k[a][b];
        drow_[a] = fma(d, f.column[b], drow_[a]);
        dcolumn_[b] = fma(d, f.row[a], dcolumn_[b]);
        gradient[a][b] = gradient[a][b] * (f.row[a] * f.column[b]);
      }
  }
  LOCKSTEP_INLINE void undo(int n, std::int64_t step) {
    matrix.undo(n, drow_, dcolumn_, factors_[step + 1], sums_[step].row, sums_[step].column);
    for (int b = 0; b < n; ++b) dcolumn_[b] = Vec<T>{};
  }
  /// `gradient` becomes that of K.
  LOCKSTEP_INLINE void end(int n, std::int64_t steps) {
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto &before = factors_[step], &after = factors_[step + 1], &sums = sums_[step];
#pragma GCC unroll 4
      for (int a = 0; a < n; ++a)
#pragma GCC unroll 4
        for (int b = 0; b < n; ++b)
          gradient[a][b] = fma(sums.row[a], after.column[b], fma(before.row[a], sums.column[b], gradient[a][b]));
    }
  }

  Sinkhorn<T, kN> matrix;
  Vec<T> gradient[Sinkhorn<T, kN>::kMost][Sinkhorn<T, kN>::kMost];

 private:
  typename Sinkhorn<T, kN>::Factors factors_[kMostSteps + 1], sums_[kMostSteps];
  typename Sinkhorn<T, kN>::Factor drow_, dcolumn_;
};

/// lane_sums: as `sums` of HyperKernels, for each lane.
template <class T, int kN, bool kMixes, int kGroups>
void gradient_of(std::int64_t i, std::int64_t tokens, T* dmaps, Vec<T>* lane_sums, const T* raw,
                 const HyperGates<T>& g) {
  const int n = kN > 0 ? kN : static_cast<int>(g.streams);
  const std::int64_t k = g.maps();
  Tokens<T, kMapsOf<kN, kMixes>> numbers[kGroups], gradients[kGroups];
  SinkhornGradient<T, kN> res[kGroups];
  for (int group = 0; group < kGroups; ++group) {
    const std::int64_t first = i + group * kLanes<T>, count = count_from<T>(first, tokens);
    numbers[group].read(raw + first * k, k, count);
    gradients[group].read(dmaps + first * k, k, count);
    if (!kMixes) continue;
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) {
        const std::int64_t column = (2 + a) * n + b;
        res[group].matrix.k[a][b] = exp(clamped<T>(res_logit(g, a * n + b, numbers[group][column])));
        res[group].gradient[a][b] = gradients[group][column];
      }
    res[group].begin(n);
  }
  if constexpr (kMixes) {
    for (std::int64_t step = 0; step < g.steps; ++step)
#pragma GCC unroll 2
      for (int group = 0; group < kGroups; ++group) res[group].step(n, step);
    for (int group = 0; group < kGroups; ++group) res[group].begin_back(n, g.steps);
    for (std::int64_t step = g.steps - 1; step >= 0; --step)
#pragma GCC unroll 2
      for (int group = 0; group < kGroups; ++group) res[group].undo(n, step);
  }
  for (int group = 0; group < kGroups; ++group) {
    const auto& own = numbers[group];
    auto& to = gradients[group];
    T* rows = dmaps + (i + group * kLanes<T>)*k;
    /// Computes the gradients of alpha, bias and raw from the gradient of z = alpha raw + bias.
    const auto finish = [&](int which, std::int64_t column, Vec<T> dz) {
      lane_sums[which] = fma(dz, own[column], lane_sums[which]);
      lane_sums[3 + column] += dz;
      to.set(rows, column, dz * splat(g.alpha[which]));
    };
    for (int s = 0; s < n; ++s) {
      for (const int which : {0, 1}) {
        const std::int64_t column = which * n + s;
        const Vec<T> y = sigmoid<T>(fma(splat(g.alpha[which]), own[column], splat(g.bias[which][s])));
        finish(which, column, to[column] * y * (splat(T{1}) - y) * splat(static_cast<T>(which + 1)));
      }
    }
    if (kMixes) res[group].end(n, g.steps);
    for (int a = 0; kMixes && a < n; ++a)
      for (int b = 0; b < n; ++b) {
        const Vec<T> z = res_logit(g, a * n + b, own[(2 + a) * n + b]);
        const Vec<T> inside = (z > splat(T{10}) || z < splat(T{-10})) ? Vec<T>{} : splat(T{1});
        finish(2, (2 + a) * n + b, res[group].gradient[a][b] * res[group].matrix.k[a][b] * inside);
      }
    to.store_all(rows);
  }
}

template <class T>
void maps(std::int64_t tokens, std::int64_t width, T* maps, T* raw, T* scale, const T* x, T eps,
          const HyperGates<T>& g) {
  const std::int64_t k = g.maps();
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
  with_streams(g, [&]<int kN, bool kMixes>() {
    each_groups<T, kN>(tokens,
                       [&]<int kGroups>(std::int64_t i) { maps_of<T, kN, kMixes, kGroups>(i, tokens, maps, raw, g); });
  });
}

template <class T>
void maps_gradient(std::int64_t tokens, T* dmaps, T* sums, const T* raw, const HyperGates<T>& g) {
  Vec<T> lane_sums[3 + kMostStreams * (2 + kMostStreams)] = {};
  with_streams(g, [&]<int kN, bool kMixes>() {
    each_groups<T, kN>(tokens, [&]<int kGroups>(std::int64_t i) {
      gradient_of<T, kN, kMixes, kGroups>(i, tokens, dmaps, lane_sums, raw, g);
    });
  });
  for (std::int64_t s = 0; s < 3 + g.maps(); ++s) sums[s] += total<T>(lane_sums[s]);
}

/// Rows of dx that stay in the second-level cache between the two passes over them. The first pass reads whole rows,
/// which hardware prefetchers predict better than blocks of a panel's width.
constexpr std::int64_t kInputRows = (kTileRows < 8 ? 8 : 4) * kTileRows;

template <class T>
void input_gradient(std::int64_t tokens, std::int64_t width, std::int64_t maps, T* dx, T* dmaps, const T* raw,
                    const T* scale, const T* x, const T* weight) {
  for (std::int64_t begin = 0; begin < tokens; begin += kInputRows) {
    const std::int64_t end = smaller(begin + kInputRows, tokens);
    for (std::int64_t i = begin; i < end; ++i) {
      Vec<T> product{};
      each_vector<T>(maps, [&](std::int64_t k, Lanes<T> lanes) {
        const Vec<T> d = load(dmaps + i * maps + k, lanes);
        product = fma(d, load(raw + i * maps + k, lanes), product);
        store(dmaps + i * maps + k, d * splat(scale[i]), lanes);
      });
      if (!dx) continue;
      const Vec<T> factor = splat(-scale[i] * scale[i] * total<T>(product) / static_cast<T>(width));
      each_vector<T>(width, [&](std::int64_t c, Lanes<T> lanes) {
        T* to = dx + i * width + c;
        store(to, fma(factor, load(x + i * width + c, lanes), load(to, lanes)), lanes);
      });
    }
    if (!dx) continue;
    const std::int64_t tile_rows = ceil_div(end - begin, ceil_div(end - begin, kTileRows));
    for (std::int64_t j = 0; j < width; j += kPanel<T>) {
      const std::int64_t columns = smaller(kPanel<T>, width - j);
      for (std::int64_t i = begin; i < end; i += tile_rows) {
        Tile<T> t = {.k = maps,
                     .a = dmaps + i * maps,
                     .a_stride = maps,
                     .b = weight + j,
                     .b_stride = width,
                     .c = dx + i * width + j,
                     .c_stride = width,
                     .begin = Begin::result};
        run_tile<T, true, true>(smaller(tile_rows, end - i), columns, t);
      }
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(HyperKernels, hyper_kernels, maps<T>, maps_gradient<T>, input_gradient<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
