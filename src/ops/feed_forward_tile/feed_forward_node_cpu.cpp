// The tile of one node: values are contiguous, so a vector register holds several values of one layer. Every sum is the
// same chain as in feed_forward_tile_cpu.cpp: the results have the same bits.
#include "feed_forward_tile_kernels.hpp"
#include "tile_activation.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// f(i, lanes) for i = 0, kLanes, ... below n.
template <class T, class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t n, const F& f) {
  for (std::int64_t i = 0; i < n; i += kLanes<T>) f(i, Lanes<T>(n - i < kLanes<T> ? n - i : kLanes<T>));
}

/// R vectors of out = bias + M^T x, times `times` unless null, from column i on; M (depth, columns).
template <int R, class T>
LOCKSTEP_INLINE void block(std::int64_t i, std::int64_t columns, std::int64_t depth, const T* m, const T* bias,
                           const T* x, const T* times, T* out) {
  constexpr std::int64_t kL = kLanes<T>;
  const std::int64_t rest = columns - i - (R - 1) * kL;
  const Lanes<T> last(rest < kL ? rest : kL);
  const auto load_at = [&](const T* from, int r) {
    return r + 1 < R ? load(from + i + r * kL) : load(from + i + r * kL, last);
  };
  Vec<T> sum[R];
  for (int r = 0; r < R; ++r) sum[r] = bias ? load_at(bias, r) : Vec<T>{};
  for (std::int64_t k = 0; k < depth; ++k)
    for (int r = 0; r < R; ++r) sum[r] = fma(load_at(m + k * columns, r), splat(x[k]), sum[r]);
  for (int r = 0; r < R; ++r) {
    if (times) sum[r] = sum[r] * load_at(times, r);
    if (r + 1 < R)
      store(out + i + r * kL, sum[r]);
    else
      store(out + i + r * kL, sum[r], last);
  }
}

template <class T>
void dense(std::int64_t columns, std::int64_t depth, const T* m, const T* bias, const T* x, const T* times, T* out) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t i = 0;
  for (; columns - i > 4 * kL; i += 8 * kL) {
    if (columns - i > 7 * kL)
      block<8>(i, columns, depth, m, bias, x, times, out);
    else if (columns - i > 6 * kL)
      block<7>(i, columns, depth, m, bias, x, times, out);
    else if (columns - i > 5 * kL)
      block<6>(i, columns, depth, m, bias, x, times, out);
    else
      block<5>(i, columns, depth, m, bias, x, times, out);
  }
  if (columns - i > 3 * kL)
    block<4>(i, columns, depth, m, bias, x, times, out);
  else if (columns - i > 2 * kL)
    block<3>(i, columns, depth, m, bias, x, times, out);
  else if (columns - i > kL)
    block<2>(i, columns, depth, m, bias, x, times, out);
  else if (columns > i)
    block<1>(i, columns, depth, m, bias, x, times, out);
}

template <class T>
constexpr const T* kNone = nullptr;

template <class T>
void forward(const FeedForward<T>& net, const T* z, T* d, T* scratch, T* y) {
  const Act<T> act = activation_of<T>(net.activation);
  const T* x = z;
  for (std::int64_t k = 0; k + 1 < net.count; ++k) {
    const DenseLayer<T>& layer = net.layer[k];
    T* out = scratch + k % 2 * net.widest();
    dense(layer.out, layer.in, layer.transposed, layer.bias, x, kNone<T>, out);
    act(out, d, layer.out);
    if (d) d += layer.out;
    x = out;
  }
  const DenseLayer<T>& last = net.layer[net.count - 1];
  if (y) dense(last.out, last.in, last.transposed, last.bias, x, kNone<T>, y);
}

/// From the tangent t of layer `from`, whose derivatives d begins with, to the output.
template <class T>
void tangent_rest(const FeedForward<T>& net, const T* d, std::int64_t from, const T* t, T* scratch, T* dy) {
  for (std::int64_t k = from; k < net.count; ++k) {
    const DenseLayer<T>& layer = net.layer[k];
    const bool last = k + 1 == net.count;
    T* out = last ? dy : scratch + k % 2 * net.widest();
    dense(layer.out, layer.in, layer.transposed, kNone<T>, t, last ? nullptr : d, out);
    if (!last) d += layer.out;
    t = out;
  }
}
template <class T>
void tangent(const FeedForward<T>& net, const T* d, const T* dz, T* scratch, T* dy) {
  tangent_rest(net, d, 0, dz, scratch, dy);
}
template <class T>
void column(const FeedForward<T>& net, const T* d, std::int64_t i, T* scratch, T* dy) {
  const DenseLayer<T>& first = net.layer[0];
  for_vectors<T>(first.out, [&](std::int64_t o, Lanes<T> lanes) {
    store(scratch + o, load(first.transposed + i * first.out + o, lanes) * load(d + o, lanes), lanes);
  });
  tangent_rest(net, d + first.out, 1, scratch, scratch, dy);
}

/// From the adjoint s of layer `from`'s output down to dz; d ends before that layer's derivatives.
template <class T>
void adjoint_rest(const FeedForward<T>& net, const T* d, std::int64_t from, const T* s, T* scratch, T* dz) {
  for (std::int64_t k = from; k >= 0; --k) {
    const DenseLayer<T>& layer = net.layer[k];
    T* out = k == 0 ? dz : scratch + k % 2 * net.widest();
    d -= layer.in;
    dense(layer.in, layer.out, layer.weight, kNone<T>, s, k == 0 ? nullptr : d, out);
    s = out;
  }
}
template <class T>
void adjoint(const FeedForward<T>& net, const T* d, const T* dy, T* scratch, T* dz) {
  adjoint_rest(net, d + net.hidden_rows(), net.count - 1, dy, scratch, dz);
}
template <class T>
void row(const FeedForward<T>& net, const T* d, std::int64_t o, T* scratch, T* dz) {
  const DenseLayer<T>& last = net.layer[net.count - 1];
  const T* end = d + net.hidden_rows() - last.in;
  T* s = scratch + (net.count - 1) % 2 * net.widest();
  for_vectors<T>(last.in, [&](std::int64_t i, Lanes<T> lanes) {
    store(s + i, load(last.weight + o * last.in + i, lanes) * load(end + i, lanes), lanes);
  });
  adjoint_rest(net, end, net.count - 2, static_cast<const T*>(s), scratch, dz);
}

template <class T>
void normalise(std::int64_t rows, T* v, const T* mean, const T* std) {
  for_vectors<T>(rows, [&](std::int64_t r, Lanes<T> lanes) {
    store(v + r, (load(v + r, lanes) - load(mean + r, lanes)) / load(std + r, lanes), lanes);
  });
}
template <class T>
void finish(std::int64_t rows, T* v, const T* scale, const T* keep) {
  const bool kept = !keep || *keep != 0;
  for_vectors<T>(rows, [&](std::int64_t r, Lanes<T> lanes) {
    const Vec<T> x = load(v + r, lanes) * load(scale + r, lanes);
    store(v + r, kept ? (x - x == Vec<T>{} ? x : Vec<T>{}) : Vec<T>{}, lanes);
  });
}
template <class T>
void multiply(std::int64_t n_out, std::int64_t n_in, const T* k, const T* x, T* y) {
  for (std::int64_t o = 0; o < n_out; ++o) {
    Vec<T> sum{};  // one lane: the rows of K are contiguous, the outputs are not
    for (std::int64_t i = 0; i < n_in; ++i) sum = fma(splat(k[o * n_in + i]), splat(x[i]), sum);
    y[o] = sum[0];
  }
}
template <class T>
void multiply_transposed(std::int64_t n_out, std::int64_t n_in, const T* k, const T* y, T* x) {
  dense(n_in, n_out, k, kNone<T>, y, kNone<T>, x);
}
template <class T>
void copy(std::int64_t features, const T* from, T* to) {
  for (std::int64_t f = 0; f < features; ++f) to[f] = from[f];
}
template <class T>
void from_rows(std::int64_t features, std::int64_t, const T* rows, std::int64_t, T* tile) {
  copy(features, rows, tile);
}
template <class T>
void to_rows(std::int64_t features, std::int64_t, const T* tile, T* rows, std::int64_t) {
  copy(features, tile, rows);
}

template <class T>
constexpr FeedForwardTile<T> kTable = {1,
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
const FeedForwardTile<T>& feed_forward_node() {
  return kTable<T>;
}
LOCKSTEP_EACH_FLOAT(feed_forward_node)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
