// Tiles of C nodes, one, two or four: arrays are (C, rows), so a vector register holds several values of one layer, and
// each weight is loaded once for all nodes. The order of additions is that of feed_forward_tile_cpu.cpp, so the results
// have the same bits.
#include "feed_forward_tile_kernels.hpp"
#include "ops/activation/fast_activation.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// R vectors of out (C, columns) = bias + M^T x, times `times` (C, columns) unless null, from column i on; x (C,
/// depth), M (depth, ld). Each value is the sum of S chains over every S-th k.
template <int R, int C, int S, class T>
LOCKSTEP_INLINE void block(std::int64_t i, std::int64_t columns, std::int64_t depth, const T* m, std::int64_t ld,
                           const T* bias, const T* x, const T* times, T* out) {
  constexpr std::int64_t kL = kLanes<T>;
  const std::int64_t rest = columns - i - (R - 1) * kL;
  const Lanes<T> last(rest < kL ? rest : kL);
  const auto load_at = [&](const T* from, int r) __attribute__((always_inline)) {
    return r + 1 < R ? load(from + i + r * kL) : load(from + i + r * kL, last);
  };
  Vec<T> sum[S][R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Vec<T> first = bias ? load_at(bias, r) : Vec<T>{};
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      sum[0][r][c] = first;
#pragma GCC unroll 4
      for (int s = 1; s < S; ++s) sum[s][r][c] = Vec<T>{};
    }
  }
  m += i;
  for_chains<S>(
      depth, [&](auto s) __attribute__((always_inline)) {
        Vec<T> in[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) in[c] = splat(x[c * depth]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec<T> weight = S == 1 ? load(m + r * kL) : load(m + r * kL, last);  // only with S = 1 is a row padded
#pragma GCC unroll 4
          for (int c = 0; c < C; ++c) sum[s][r][c] = fma(weight, in[c], sum[s][r][c]);
        }
        ++x;
        m += ld;
      });
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      Vec<T> v = sum_of_chains<S>([&](int s) { return sum[s][r][c]; });
      if (times) v = v * load_at(times + c * columns, r);
      if (r + 1 < R)
        store(out + c * columns + i + r * kL, v);
      else
        store(out + c * columns + i + r * kL, v, last);
    }
}

/// Vectors of a block: as many as there are registers for the sums of C nodes.
template <int C>
constexpr int kMostVectors = kVectorRegisters < 32 ? 8 / C : (C == 4 ? 4 : 8);

template <int R, int C, class T>
LOCKSTEP_INLINE void block_of(std::int64_t vectors, std::int64_t i, std::int64_t columns, std::int64_t depth,
                              const T* m, const T* bias, const T* x, const T* times, T* out) {
  if constexpr (R > 1) {
    if (vectors < R) return block_of<R - 1, C>(vectors, i, columns, depth, m, bias, x, times, out);
  }
  block<R, C, 1>(i, columns, depth, m, NodeWeights<T>::stride(columns), bias, x, times, out);
}

template <int C, class T>
void dense(std::int64_t columns, std::int64_t depth, const T* m, const T* bias, const T* x, const T* times, T* out) {
  if (columns <= NodeWeights<T>::kFewRows)
    return block<1, C, kChains>(0, columns, depth, m, columns, bias, x, times, out);
  constexpr std::int64_t kL = kLanes<T>, kMost = kMostVectors<C>;
  std::int64_t left = (columns + kL - 1) / kL;
  for (std::int64_t i = 0, blocks = (left + kMost - 1) / kMost; blocks > 0; --blocks) {  // of nearly equal width
    const std::int64_t vectors = (left + blocks - 1) / blocks;
    block_of<kMost, C>(vectors, i, columns, depth, m, bias, x, times, out);
    i += vectors * kL;
    left -= vectors;
  }
}

template <class T>
constexpr const T* kNone = nullptr;

/// The buffer for the results of layer k.
template <int C, class T>
T* buffer(const FeedForward<T>& net, T* scratch, std::int64_t k) {
  return scratch + k % 2 * net.widest() * C;
}

template <int C, class T>
void forward(const FeedForward<T>& net, const T* z, T* d, T* scratch, T* y) {
  const ActivationKernel<T> act = kernel_of<T>(net.activation);
  const T* x = z;
  for (std::int64_t k = 0; k + 1 < net.count; ++k) {
    const DenseLayer<T>& layer = net.layer[k];
    T* out = buffer<C>(net, scratch, k);
    dense<C>(layer.out, layer.in, layer.by_input, layer.bias, x, kNone<T>, out);
    act(layer.out * C, out, d, out);
    if (d) d += layer.out * C;
    x = out;
  }
  const DenseLayer<T>& last = net.layer[net.count - 1];
  if (y) dense<C>(last.out, last.in, last.by_input, last.bias, x, kNone<T>, y);
}

/// From the tangent t of the input of layer `from` to the output; d begins with that layer's derivatives.
template <int C, class T>
void tangent_rest(const FeedForward<T>& net, const T* d, std::int64_t from, const T* t, T* scratch, T* dy) {
  for (std::int64_t k = from; k < net.count; ++k) {
    const DenseLayer<T>& layer = net.layer[k];
    const bool last = k + 1 == net.count;
    T* out = last ? dy : buffer<C>(net, scratch, k);
    dense<C>(layer.out, layer.in, layer.by_input, kNone<T>, t, last ? nullptr : d, out);
    if (!last) d += layer.out * C;
    t = out;
  }
}
template <int C, class T>
void tangent(const FeedForward<T>& net, const T* d, const T* dz, T* scratch, T* dy) {
  tangent_rest<C>(net, d, 0, dz, scratch, dy);
}
template <int C, class T>
void column(const FeedForward<T>& net, const T* d, std::int64_t i, T* scratch, T* dy) {
  const DenseLayer<T>& first = net.layer[0];
  const T* weight = first.by_input + i * NodeWeights<T>::stride(first.out);
  for (int c = 0; c < C; ++c)
    each_vector<T>(first.out, [&](std::int64_t o, Lanes<T> lanes) {
      const std::int64_t at = c * first.out + o;
      store(scratch + at, load(weight + o, lanes) * load(d + at, lanes), lanes);
    });
  tangent_rest<C>(net, d + first.out * C, 1, static_cast<const T*>(scratch), scratch, dy);
}

/// From the adjoint s of layer `from`'s output down to dz; d ends before that layer's derivatives.
template <int C, class T>
void adjoint_rest(const FeedForward<T>& net, const T* d, std::int64_t from, const T* s, T* scratch, T* dz) {
  for (std::int64_t k = from; k >= 0; --k) {
    const DenseLayer<T>& layer = net.layer[k];
    T* out = k == 0 ? dz : buffer<C>(net, scratch, k);
    if (k > 0) d -= layer.in * C;
    dense<C>(layer.in, layer.out, layer.by_output, kNone<T>, s, k == 0 ? nullptr : d, out);
    s = out;
  }
}
template <int C, class T>
void adjoint(const FeedForward<T>& net, const T* d, const T* dy, T* scratch, T* dz) {
  adjoint_rest<C>(net, d + net.hidden_rows() * C, net.count - 1, dy, scratch, dz);
}
template <int C, class T>
void row(const FeedForward<T>& net, const T* d, std::int64_t o, T* scratch, T* dz) {
  const DenseLayer<T>& last = net.layer[net.count - 1];
  const T* end = d + (net.hidden_rows() - last.in) * C;
  T* s = buffer<C>(net, scratch, net.count - 1);
  for (int c = 0; c < C; ++c)
    each_vector<T>(last.in, [&](std::int64_t i, Lanes<T> lanes) {
      const std::int64_t at = c * last.in + i;
      store(s + at, load(last.weight + o * last.in + i, lanes) * load(end + at, lanes), lanes);
    });
  adjoint_rest<C>(net, end, net.count - 2, static_cast<const T*>(s), scratch, dz);
}

template <int C, class T>
void normalise(std::int64_t rows, T* v, const T* mean, const T* std) {
  for (int c = 0; c < C; ++c, v += rows)
    each_vector<T>(rows, [&](std::int64_t r, Lanes<T> lanes) {
      const Vec<T> z = (load(v + r, lanes) - load(mean + r, lanes)) / load(std + r, lanes);
      store(v + r, z - z == Vec<T>{} ? z : z - z, lanes);  // inf - inf is NaN
    });
}
template <int C, class T>
bool finish(std::int64_t rows, T* v, const T* scale, const T* keep) {
  Vec<T> none{};  // a lane becomes NaN at its first value that is not finite
  for (int c = 0; c < C; ++c, v += rows) {
    const T kept = keep ? keep[c] : T{1};
    each_vector<T>(rows, [&](std::int64_t r, Lanes<T> lanes) {
      const Vec<T> factor = load(scale + r, lanes);
      const Vec<T> x =
          kept != 0 ? (factor != Vec<T>{} ? load(v + r, lanes) * factor * splat(kept) : Vec<T>{}) : Vec<T>{};
      none = none + (x - x);
      store(v + r, x, lanes);
    });
  }
  return all_zero(none, kLanes<T>);
}
template <int C, class T>
void multiply(std::int64_t n_out, std::int64_t n_in, const T* k, const T* x, T* y) {
  for (int c = 0; c < C; ++c, x += n_in)
    for (std::int64_t o = 0; o < n_out; ++o, k += n_in) {
      Vec<T> sum{};  // one lane: the rows of K are contiguous, the outputs are not
      for (std::int64_t i = 0; i < n_in; ++i) sum = fma(splat(k[i]), splat(x[i]), sum);
      *y++ = sum[0];
    }
}
template <int C, class T>
void multiply_transposed(std::int64_t n_out, std::int64_t n_in, const T* k, const T* y, T* x) {
  for (int c = 0; c < C; ++c, k += n_out * n_in, y += n_out, x += n_in)
    each_vector<T>(n_in, [&](std::int64_t i, Lanes<T> lanes) {
      Vec<T> sum{};
      for (std::int64_t o = 0; o < n_out; ++o) sum = fma(load(k + o * n_in + i, lanes), splat(y[o]), sum);
      store(x + i, sum, lanes);
    });
}

template <int C, class T>
void from_rows(std::int64_t features, std::int64_t count, const T* rows, std::int64_t ld, T* tile) {
  for (std::int64_t c = 0; c < C; ++c)
    each_vector<T>(features, [&](std::int64_t f, Lanes<T> lanes) {
      store(tile + c * features + f, c < count ? load(rows + c * ld + f, lanes) : Vec<T>{}, lanes);
    });
}
template <int C, class T>
void to_rows(std::int64_t features, std::int64_t count, const T* tile, T* rows, std::int64_t ld) {
  for (std::int64_t c = 0; c < count; ++c)
    each_vector<T>(features, [&](std::int64_t f, Lanes<T> lanes) {
      store(rows + c * ld + f, load(tile + c * features + f, lanes), lanes);
    });
}

template <int C, class T>
constexpr FeedForwardTile<T> kTable = {C,
                                       true,
                                       forward<C, T>,
                                       tangent<C, T>,
                                       column<C, T>,
                                       adjoint<C, T>,
                                       row<C, T>,
                                       normalise<C, T>,
                                       finish<C, T>,
                                       multiply<C, T>,
                                       multiply_transposed<C, T>,
                                       from_rows<C, T>,
                                       to_rows<C, T>};

}  // namespace

template <class T>
const FeedForwardTile<T>& feed_forward_nodes(int nodes) {
  return nodes == 1 ? kTable<1, T> : nodes == 2 ? kTable<2, T> : kTable<4, T>;
}
LOCKSTEP_EACH_FLOAT(feed_forward_nodes)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
