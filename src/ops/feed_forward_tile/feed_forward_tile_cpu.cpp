#include "feed_forward_tile_kernels.hpp"
#include "ops/activation/fast_activation.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

// Vectors of nodes in a tile, and rows of the output that are summed at once.
#if defined(LOCKSTEP_ISA_avx512) || defined(LOCKSTEP_ISA_asimd)
constexpr int kVectors = 3, kRows = 8;  // 24 sums, 3 inputs and a weight in 32 registers
#elif defined(LOCKSTEP_ISA_avx2)
constexpr int kVectors = 3, kRows = 4;  // 12 sums, 3 inputs and a weight in 16 registers
#else
constexpr int kVectors = 2, kRows = 4;
#endif
template <class T>
constexpr int kNodes = kVectors* kLanes<T>;

// Layers.

/// rows o .. o + R of out = W x (+ bias), or of W^T x when Transposed; each times the same row of `times` unless null.
/// Each value is the sum of S chains of fused multiply-adds over every S-th k, in ascending order.
template <int R, int S, bool Transposed, class T>
[[gnu::always_inline]] inline void block(std::int64_t o, std::int64_t depth, const T* weight, std::int64_t ld,
                                         const T* bias, const T* x, const T* times, T* out) {
  Vec<T> sum[S][R][kVectors];
  for (int s = 0; s < S; ++s)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kVectors; ++v) sum[s][r][v] = s == 0 && bias ? splat(bias[o + r]) : Vec<T>{};
  const T* w = Transposed ? weight + o : weight + o * ld;
  for_chains<S>(
      depth, [&](auto s) __attribute__((always_inline)) {
        Vec<T> in[kVectors];
        for (int v = 0; v < kVectors; ++v) in[v] = load(x + v * kLanes<T>);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec<T> broadcast = splat(w[Transposed ? r : r * ld]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sum[s][r][v] = fma(broadcast, in[v], sum[s][r][v]);
        }
        x += kNodes<T>;
        w += Transposed ? ld : 1;
      });
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = (o + r) * kNodes<T> + v * kLanes<T>;
      const Vec<T> total = sum_of_chains<S>([&](int s) { return sum[s][r][v]; });
      store(out + at, times ? total * load(times + at) : total);
    }
}

template <int R, bool Transposed, class T>
inline void remainder(std::int64_t left, std::int64_t o, std::int64_t depth, const T* weight, std::int64_t ld,
                      const T* bias, const T* x, const T* times, T* out) {
  if constexpr (R > 0) {
    if (left == R) return block<R, 1, Transposed>(o, depth, weight, ld, bias, x, times, out);
    remainder<R - 1, Transposed>(left, o, depth, weight, ld, bias, x, times, out);
  }
}

/// A layer's `rows` results, activated block by block while they are in the L1 cache.
template <bool Transposed, class T>
void dense(std::int64_t rows, std::int64_t depth, const T* weight, std::int64_t ld, const T* bias, const T* x,
           const T* times, T* out, ActivationKernel<T> act = nullptr, T* slope = nullptr) {
  for (std::int64_t o = 0; o < rows; o += kRows) {
    const std::int64_t left = rows - o < kRows ? rows - o : kRows;
    static_assert(NodeWeights<T>::kFewRows == 2);
    if (rows == 1)
      block<1, kChains, Transposed>(o, depth, weight, ld, bias, x, times, out);
    else if (rows == 2)
      block<2, kChains, Transposed>(o, depth, weight, ld, bias, x, times, out);
    else if (left == kRows)
      block<kRows, 1, Transposed>(o, depth, weight, ld, bias, x, times, out);
    else
      remainder<kRows - 1, Transposed>(left, o, depth, weight, ld, bias, x, times, out);
    T* const first = out + o * kNodes<T>;
    if (act) act(left * kNodes<T>, first, slope ? slope + o * kNodes<T> : nullptr, first);
  }
}

template <class T>
void multiply_by(std::int64_t rows, const T* factor, T* v) {
  for (std::int64_t i = 0; i < rows * kNodes<T>; i += kLanes<T>) store(v + i, load(v + i) * load(factor + i));
}

// The convolution.

/// First and one past the last tap j for which the point i + j - taps/2 lies in 0 .. n-1.
inline std::int64_t first_tap(std::int64_t i, std::int64_t taps) { return i < taps / 2 ? taps / 2 - i : 0; }
inline std::int64_t end_tap(std::int64_t i, std::int64_t taps, std::int64_t n) {
  const std::int64_t last = n - i + taps / 2;
  return last < taps ? last : taps;
}

template <class T>
void convolve(const FeedForward<T>& net, const T* bias, const T* x, T* out) {
  const std::int64_t n = net.n_in, taps = net.conv.in;
  for (std::int64_t c = 0; c < net.conv.out; ++c)
    for (std::int64_t i = 0; i < n; ++i)
      for (int v = 0; v < kVectors; ++v) {
        Vec<T> sum = bias ? splat(bias[c]) : Vec<T>{};
        for (std::int64_t j = first_tap(i, taps); j < end_tap(i, taps, n); ++j)
          sum =
              fma(splat(net.conv.weight[c * taps + j]), load(x + (i + j - taps / 2) * kNodes<T> + v * kLanes<T>), sum);
        store(out + (c * n + i) * kNodes<T> + v * kLanes<T>, sum);
      }
}

template <class T>
void convolve_adjoint(const FeedForward<T>& net, const T* dout, T* dx) {
  const std::int64_t n = net.n_in, taps = net.conv.in;
  for (std::int64_t i = 0; i < n * kNodes<T>; i += kLanes<T>) store(dx + i, Vec<T>{});
  for (std::int64_t c = 0; c < net.conv.out; ++c)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = first_tap(i, taps); j < end_tap(i, taps, n); ++j)
        for (int v = 0; v < kVectors; ++v) {
          T* at = dx + (i + j - taps / 2) * kNodes<T> + v * kLanes<T>;
          store(at, fma(splat(net.conv.weight[c * taps + j]), load(dout + (c * n + i) * kNodes<T> + v * kLanes<T>),
                        load(at)));
        }
}

// The network.

template <class T>
void forward(const FeedForward<T>& net, const T* z, T* d, T* scratch, T* y) {
  const ActivationKernel<T> act = kernel_of<T>(net.activation);
  T* spare[2] = {scratch, scratch + net.widest() * kNodes<T>};
  int buffer = 0;
  const T* x = z;
  std::int64_t row = 0;
  if (net.conv.out > 0) {
    T* out = spare[buffer++ % 2];
    convolve(net, net.conv.bias, x, out);
    act(net.conv_rows() * kNodes<T>, out, d, out);
    x = out;
    row += net.conv_rows();
  }
  for (std::int64_t k = 0; k + 1 < net.count; ++k) {
    const DenseLayer<T>& layer = net.layer[k];
    T* out = spare[buffer++ % 2];
    dense<false>(layer.out, layer.in, layer.weight, layer.in, layer.bias, x, static_cast<const T*>(nullptr), out, act,
                 d ? d + row * kNodes<T> : nullptr);
    x = out;
    row += layer.out;
  }
  if (!y) return;
  const DenseLayer<T>& last = net.layer[net.count - 1];
  dense<false>(last.out, last.in, last.weight, last.in, last.bias, x, static_cast<const T*>(nullptr), y);
}

/// From the tangent t of the input of layer `from` to the output; `used` is the scratch buffer that t occupies, if any.
template <class T>
void tangent_rest(const FeedForward<T>& net, const T* d, std::int64_t from, std::int64_t row, const T* t,
                  T* const spare[2], int used, T* dy) {
  for (std::int64_t k = from; k < net.count; ++k) {
    const DenseLayer<T>& layer = net.layer[k];
    const bool last = k + 1 == net.count;
    T* out = last ? dy : spare[used = 1 - used];
    dense<false>(layer.out, layer.in, layer.weight, layer.in, static_cast<const T*>(nullptr), t,
                 last ? nullptr : d + row * kNodes<T>, out);
    t = out;
    row += layer.out;
  }
}

template <class T>
void tangent(const FeedForward<T>& net, const T* d, const T* dz, T* scratch, T* dy) {
  T* const spare[2] = {scratch, scratch + net.widest() * kNodes<T>};
  if (net.conv.out > 0) {
    convolve(net, static_cast<const T*>(nullptr), dz, spare[0]);
    multiply_by(net.conv_rows(), d, spare[0]);
    dz = spare[0];
  }
  tangent_rest(net, d, 0, net.conv_rows(), dz, spare, 0, dy);
}

template <class T>
void column(const FeedForward<T>& net, const T* d, std::int64_t i, T* scratch, T* dy) {
  T* const spare[2] = {scratch, scratch + net.widest() * kNodes<T>};
  if (net.conv.out > 0) {
    const std::int64_t n = net.n_in, taps = net.conv.in;
    for (std::int64_t c = 0; c < net.conv.out; ++c)
      for (std::int64_t to = 0; to < n; ++to) {
        const std::int64_t j = i - to + taps / 2;
        const Vec<T> w = j >= 0 && j < taps ? splat(net.conv.weight[c * taps + j]) : Vec<T>{};
        const std::int64_t at = (c * n + to) * kNodes<T>;
        for (int v = 0; v < kVectors; ++v) store(spare[0] + at + v * kLanes<T>, w * load(d + at + v * kLanes<T>));
      }
    return tangent_rest(net, d, 0, net.conv_rows(), static_cast<const T*>(spare[0]), spare, 0, dy);
  }
  const DenseLayer<T>& first = net.layer[0];
  for (std::int64_t o = 0; o < first.out; ++o)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = o * kNodes<T> + v * kLanes<T>;
      store(spare[0] + at, splat(first.weight[o * first.in + i]) * load(d + at));
    }
  tangent_rest(net, d, 1, first.out, static_cast<const T*>(spare[0]), spare, 0, dy);
}

/// From the adjoint of the output of layer `from` (row = first row of that layer's d) down to dz.
template <class T>
void adjoint_rest(const FeedForward<T>& net, const T* d, std::int64_t from, std::int64_t row, const T* s,
                  T* const spare[2], int used, T* dz) {
  for (std::int64_t k = from; k >= 0; --k) {
    const DenseLayer<T>& layer = net.layer[k];
    const bool last = k == 0 && net.conv.out == 0;
    T* out = last ? dz : spare[used = 1 - used];
    row -= layer.in;
    dense<true>(layer.in, layer.out, layer.weight, layer.in, static_cast<const T*>(nullptr), s,
                last ? nullptr : d + row * kNodes<T>, out);
    s = out;
  }
  if (net.conv.out > 0) convolve_adjoint(net, s, dz);
}

template <class T>
void adjoint(const FeedForward<T>& net, const T* d, const T* dy, T* scratch, T* dz) {
  T* const spare[2] = {scratch, scratch + net.widest() * kNodes<T>};
  adjoint_rest(net, d, net.count - 1, net.hidden_rows(), dy, spare, 0, dz);
}

template <class T>
void row(const FeedForward<T>& net, const T* d, std::int64_t o, T* scratch, T* dz) {
  T* const spare[2] = {scratch, scratch + net.widest() * kNodes<T>};
  const DenseLayer<T>& last = net.layer[net.count - 1];
  const std::int64_t first_row = net.hidden_rows() - last.in;
  for (std::int64_t i = 0; i < last.in; ++i)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = i * kNodes<T> + v * kLanes<T>;
      store(spare[0] + at, splat(last.weight[o * last.in + i]) * load(d + first_row * kNodes<T> + at));
    }
  adjoint_rest(net, d, net.count - 2, first_row, static_cast<const T*>(spare[0]), spare, 0, dz);
}

// Normalisation, scaling and the layouts of states and Jacobians.

template <class T>
void normalise(std::int64_t rows, T* v, const T* mean, const T* std) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < kNodes<T>; i += kLanes<T>) {
      T* at = v + r * kNodes<T> + i;
      const Vec<T> z = (load(at) - splat(mean[r])) / splat(std[r]);
      store(at, z - z == Vec<T>{} ? z : z - z);  // inf - inf is NaN
    }
}

template <class T>
bool finish(std::int64_t rows, T* v, const T* scale, const T* keep) {
  Vec<T> none{};  // a lane becomes NaN at its first value that is not finite
  for (std::int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < kNodes<T>; i += kLanes<T>) {
      T* at = v + r * kNodes<T> + i;
      Vec<T> x = scale[r] != 0 ? load(at) * splat(scale[r]) : Vec<T>{};
      if (keep) x = load(keep + i) != Vec<T>{} ? x * load(keep + i) : Vec<T>{};
      none = none + (x - x);
      store(at, x);
    }
  return all_zero(none, kLanes<T>);
}

template <class T>
void multiply(std::int64_t n_out, std::int64_t n_in, const T* k, const T* x, T* y) {
  for (std::int64_t o = 0; o < n_out; ++o) {
    Vec<T> sum[kVectors] = {};
    for (std::int64_t i = 0; i < n_in; ++i)
      for (int v = 0; v < kVectors; ++v)
        sum[v] =
            fma(load(k + (o * n_in + i) * kNodes<T> + v * kLanes<T>), load(x + i * kNodes<T> + v * kLanes<T>), sum[v]);
    for (int v = 0; v < kVectors; ++v) store(y + o * kNodes<T> + v * kLanes<T>, sum[v]);
  }
}

template <class T>
void multiply_transposed(std::int64_t n_out, std::int64_t n_in, const T* k, const T* y, T* x) {
  for (std::int64_t i = 0; i < n_in; ++i) {
    Vec<T> sum[kVectors] = {};
    for (std::int64_t o = 0; o < n_out; ++o)
      for (int v = 0; v < kVectors; ++v)
        sum[v] =
            fma(load(k + (o * n_in + i) * kNodes<T> + v * kLanes<T>), load(y + o * kNodes<T> + v * kLanes<T>), sum[v]);
    for (int v = 0; v < kVectors; ++v) store(x + i * kNodes<T> + v * kLanes<T>, sum[v]);
  }
}

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <class T>
void from_rows(std::int64_t features, std::int64_t count, const T* rows, std::int64_t ld, T* tile) {
  constexpr int L = kLanes<T>;
  if (features == 1) {
    for (std::int64_t n = 0; n < kNodes<T>; ++n) tile[n] = n < count ? rows[n * ld] : T{0};
    return;
  }
  for (std::int64_t f = 0; f < features; f += L) {
    const std::int64_t wide = smaller(L, features - f);
    const Lanes<T> lanes(wide);
    for (int n = 0; n < kNodes<T>; n += L) {
      Vec<T> v[L];
      for (int i = 0; i < L; ++i) v[i] = n + i < count ? load(rows + (n + i) * ld + f, lanes) : Vec<T>{};
      transpose<T>(v);
      for (std::int64_t i = 0; i < wide; ++i) store(tile + (f + i) * kNodes<T> + n, v[i]);
    }
  }
}

template <class T>
void to_rows(std::int64_t features, std::int64_t count, const T* tile, T* rows, std::int64_t ld) {
  constexpr int L = kLanes<T>;
  if (features == 1) {
    for (std::int64_t n = 0; n < count; ++n) rows[n * ld] = tile[n];
    return;
  }
  for (std::int64_t f = 0; f < features; f += L) {
    const std::int64_t wide = smaller(L, features - f);
    const Lanes<T> lanes(wide);
    for (int n = 0; n < kNodes<T> && n < count; n += L) {
      Vec<T> v[L];
      for (int i = 0; i < L; ++i) v[i] = i < wide ? load(tile + (f + i) * kNodes<T> + n) : Vec<T>{};
      transpose<T>(v);
      for (std::int64_t i = 0; i < smaller(L, count - n); ++i) store(rows + (n + i) * ld + f, v[i], lanes);
    }
  }
}

template <class T>
constexpr FeedForwardTile<T> kTable = {kNodes<T>,
                                       false,
                                       forward<T>,
                                       tangent<T>,
                                       column<T>,
                                       adjoint<T>,
                                       row<T>,
                                       normalise<T>,
                                       finish<T>,
                                       multiply<T>,
                                       multiply_transposed<T>,
                                       from_rows<T>,
                                       to_rows<T>};

}  // namespace

template <class T>
const FeedForwardTile<T>& feed_forward_tile() {
  return kTable<T>;
}
LOCKSTEP_EACH_FLOAT(feed_forward_tile)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
