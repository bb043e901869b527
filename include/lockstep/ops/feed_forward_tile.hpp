#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/activation.hpp"

namespace lockstep::ops {

/// Views of a layer's parameters; a convolution has its channels as `out` and its taps as `in`.
template <class T>
struct DenseLayer {
  std::int64_t in = 0, out = 0;
  const T* weight = nullptr;  ///< (out, in) row-major
  const T* bias = nullptr;    ///< (out)
  /// The same weights for feed_forward_nodes(), from NodeWeights.
  const T *by_input = nullptr, *by_output = nullptr;
};

/// A layer's weights in the order in which feed_forward_nodes() reads them: matrices (in, stride(out)) and
/// (out, stride(in)) whose rows begin at cache lines, so that no load spans two lines.
template <class T>
class NodeWeights {
 public:
  /// A layer of at most kFewRows values has too few sums to hide the latency of its additions. The kernels divide each
  /// of its sums into chains; its weights have no padding.
  static constexpr std::int64_t kFewRows = 2;
  /// Distance between rows of n values; the values after the first n are 0.
  static constexpr std::int64_t stride(std::int64_t n) {
    constexpr std::int64_t kLine = 64 / std::int64_t{sizeof(T)};
    return n <= kFewRows ? n : (n + kLine - 1) / kLine * kLine;
  }
  explicit NodeWeights(const DenseLayer<T>& layer);
  const T* by_input() const { return reinterpret_cast<const T*>(by_input_.data()); }
  const T* by_output() const { return reinterpret_cast<const T*>(by_output_.data()); }

 private:
  Buffer by_input_, by_output_;
};

/// y = W_n h_{n-1} + b_n, h_k = f(a_k), a_k = W_k h_{k-1} + b_k for k = 1 .. n-1, with n = count.
///
/// h_0 = z (n_in), or if conv.out > 0 the channels f(a_0) of a convolution, flattened channel-major to (conv.out,
/// n_in): a_0[c, i] = bias[c] + sum_j weight[c, j] z[i + j - taps / 2], with z = 0 outside 0 .. n_in - 1.
template <class T>
struct FeedForward {
  std::int64_t n_in = 0, n_out = 0;
  std::int64_t count = 0;
  const DenseLayer<T>* layer = nullptr;
  DenseLayer<T> conv;
  Activation activation = Activation::gelu;
  std::int64_t conv_rows() const { return conv.out * n_in; }
  /// Values in all hidden layers: those of the convolution first, then those of each layer in order.
  std::int64_t hidden_rows() const {
    std::int64_t rows = conv_rows();
    for (std::int64_t k = 0; k + 1 < count; ++k) rows += layer[k].out;
    return rows;
  }
  /// Values in the widest layer, input and output included.
  std::int64_t widest() const {
    std::int64_t rows = conv_rows() > n_in ? conv_rows() : n_in;
    for (std::int64_t k = 0; k < count; ++k) rows = layer[k].out > rows ? layer[k].out : rows;
    return rows;
  }
};

/// A whole feed-forward network on one tile of `nodes` samples: forward, tangent, adjoint and single rows and columns
/// of its Jacobian J = dy/dz = W_n D_{n-1} W_{n-1} ... D_1 W_1, D_k = diag(f'(a_k)).
///
/// A tile is feature-major: row r holds value r of all nodes. A vector register thus holds one value of several nodes,
/// weights need no copy, and the output of a layer has the layout of the next layer's input. A tile and the weights of
/// a usual network stay in the L1 and L2 caches. Each sum is one chain of fused multiply-adds in ascending order; in a
/// layer of one or two values it is the sum of four chains. The results of a node depend on that node alone.
///
/// shapes   tiles (rows, nodes), 64-byte aligned; d (hidden_rows() nodes) holds all f'(a_k) in an internal order;
///          scratch (2 widest(), nodes)
/// dtypes   T = float or double
template <class T>
struct FeedForwardTile {
  int nodes;        ///< per tile; depends on T and on the instruction set
  bool node_major;  ///< the arrays are (nodes, rows) instead of (rows, nodes)
  /// Row r of node n lies at r * row_step() + n * node_step(rows) of an array.
  std::int64_t row_step() const { return node_major ? 1 : nodes; }
  std::int64_t node_step(std::int64_t rows) const { return node_major ? rows : 1; }
  /// y (n_out) from z (n_in). A null d is not stored, a null y is not computed.
  void (*forward)(const FeedForward<T>&, const T* z, T* d, T* scratch, T* y);
  /// dy (n_out) = J dz (n_in).
  void (*tangent)(const FeedForward<T>&, const T* d, const T* dz, T* scratch, T* dy);
  /// dy (n_out) = column i of J.
  void (*column)(const FeedForward<T>&, const T* d, std::int64_t i, T* scratch, T* dy);
  /// dz (n_in) = J^T dy (n_out).
  void (*adjoint)(const FeedForward<T>&, const T* d, const T* dy, T* scratch, T* dz);
  /// dz (n_in) = row o of J.
  void (*row)(const FeedForward<T>&, const T* d, std::int64_t o, T* scratch, T* dz);
  /// v[r] = (v[r] - mean[r]) / std[r], and NaN where that is not finite: an activation turns an infinity into a number.
  void (*normalise)(std::int64_t rows, T* v, const T* mean, const T* std);
  /// v[r] = keep scale[r] v[r], and 0 where keep or scale[r] is 0, whatever v[r] is. Returns whether all results are
  /// finite. keep (nodes) or null: 1.
  bool (*finish)(std::int64_t rows, T* v, const T* scale, const T* keep);
  /// y (n_out) = K x (n_in) with a matrix K (n_out * n_in, nodes) of each node.
  void (*multiply)(std::int64_t n_out, std::int64_t n_in, const T* k, const T* x, T* y);
  /// x (n_in) = K^T y (n_out).
  void (*multiply_transposed)(std::int64_t n_out, std::int64_t n_in, const T* k, const T* y, T* x);
  /// tile[f, node] = rows[node * ld + f] for the first `count` nodes, 0 for the others.
  void (*from_rows)(std::int64_t features, std::int64_t count, const T* rows, std::int64_t ld, T* tile);
  /// rows[node * ld + f] = tile[f, node] for the first `count` nodes.
  void (*to_rows)(std::int64_t features, std::int64_t count, const T* tile, T* rows, std::int64_t ld);
};

/// The kernels of the active instruction set.
template <class T>
const FeedForwardTile<T>& feed_forward_tile();
/// The same for tiles of 1, 2 or 4 nodes, for callers with a few nodes at a time. The results have the same bits.
/// shapes   arrays are (nodes, rows) and need not be aligned; the network has no convolution
template <class T>
const FeedForwardTile<T>& feed_forward_nodes(int nodes);

}  // namespace lockstep::ops
