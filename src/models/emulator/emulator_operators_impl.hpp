#pragma once
// Shared by EmulatorOperators and EmulatorLinearization: weights in the form of the tile kernels; transfer of tiles
// from and to states.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/ops/feed_forward_tile.hpp"

namespace lockstep {

/// The network in the form of the tile kernels: views of the emulator's weights, and copies in their order.
template <class T>
struct TileNetwork {
  std::vector<ops::NodeWeights<T>> copies;
  std::vector<ops::DenseLayer<T>> layers;
  ops::FeedForward<T> net;
  /// The emulator's weights must have type T and outlive this object.
  explicit TileNetwork(const Emulator& emulator);
  TileNetwork(const TileNetwork&) = delete;
};

template <class T>
struct EmulatorOperators<T>::Impl {
  static constexpr std::int64_t kGroup = 4;
  Impl(const Emulator& emulator, const OperatorOptions& options);

  Emulator emulator;  ///< a copy, in T
  OperatorOptions options;
  TileNetwork<T> network;
  const ops::FeedForwardTile<T>* tile;    ///< the kernels for many nodes
  const ops::FeedForwardTile<T>* few[5];  ///< the kernels for 1 to 4 nodes
  std::vector<T> input_mean, input_std;
  std::vector<T> active;            ///< (n_in) 1 or 0
  std::vector<double> input_scale;  ///< (n_in) active / input_std
  std::vector<T> input_scale_t;     ///< input_scale as T
  std::vector<T> output_std;        ///< (n_out)
  std::vector<T> ones;              ///< (n_out)
  std::vector<T> row_scale[2];      ///< by JacobianUnits, (n_out, n_in): factors of the normalised Jacobian
  std::vector<T> column_scale[2];   ///< row_scale, transposed (n_in, n_out)

  std::int64_t n_in() const { return network.net.n_in; }
  std::int64_t n_out() const { return network.net.n_out; }
  /// Nodes [first, first + count) of a call, and the kernels that compute them.
  struct Block {
    const ops::FeedForwardTile<T>& kernels;
    std::int64_t first, count;
  };
  /// A call consists of tiles, then of groups of up to four nodes. Groups replace a last tile that would be at least a
  /// quarter idle, unless the network has a convolution: the kernels of groups have none.
  std::int64_t tiles(std::int64_t n) const {
    const std::int64_t left = n % tile->nodes;
    return n / tile->nodes + (4 * left > 3 * tile->nodes || (left > 0 && network.net.conv.out > 0) ? 1 : 0);
  }
  std::int64_t blocks(std::int64_t n) const {
    const std::int64_t in_groups = n - tiles(n) * tile->nodes;
    return tiles(n) + (in_groups > 0 ? (in_groups + kGroup - 1) / kGroup : 0);
  }
  Block block(std::int64_t n, std::int64_t index) const {
    const auto at = [&](std::int64_t first, std::int64_t most) {
      return Block{*tile, first, n - first < most ? n - first : most};
    };
    const std::int64_t in_tiles = tiles(n);
    if (index < in_tiles) return at(index * tile->nodes, tile->nodes);
    const Block group = at(in_tiles * tile->nodes + (index - in_tiles) * kGroup, kGroup);
    return {*few[group.count], group.first, group.count};
  }
  bool by_rows() const { return n_out() <= n_in(); }
  /// Elements of one thread's tile memory, for tiles of any kind.
  std::size_t tile_values() const;
};

namespace emulator_tile {

/// A block of a call in one thread: its nodes [first, first + count), their kernels, and arrays, which are aligned to
/// 64 bytes for kernels of several nodes.
template <class T>
struct Tile {
  const ops::FeedForwardTile<T>& kernels;
  std::int64_t first, count;
  T *input, *output, *scratch, *derivative, *keep;
};

/// Memory for all threads of a call: the caller's, or its own if the caller passes null.
template <class T>
class Workspace {
 public:
  Workspace(const typename EmulatorOperators<T>::Impl& impl, void* memory) : impl_(impl) {
    if (!memory) {
      own_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes(impl));
      memory = own_.get();
    }
    std::size_t space = size_bytes(impl);
    base_ = static_cast<T*>(std::align(64, space - 64, memory, space));
  }
  static std::size_t size_bytes(const typename EmulatorOperators<T>::Impl& impl) {
    return impl.tile_values() * sizeof(T) * static_cast<std::size_t>(impl.options.threads) + 64;
  }
  Tile<T> tile(const typename EmulatorOperators<T>::Impl::Block& block, int thread) const {
    const std::int64_t n = block.kernels.nodes;
    Tile<T> m{block.kernels, block.first, block.count, {}, {}, {}, {}, {}};
    m.input = base_ + impl_.tile_values() * static_cast<std::size_t>(thread);
    m.output = m.input + impl_.n_in() * n;
    m.scratch = m.output + impl_.n_out() * n;
    m.derivative = m.scratch + 2 * impl_.network.net.widest() * n;
    m.keep = m.derivative + impl_.network.net.hidden_rows() * n;
    return m;
  }

 private:
  const typename EmulatorOperators<T>::Impl& impl_;
  std::unique_ptr<std::byte[]> own_;
  T* base_;
};

/// array(v, lane) = f(v, x(first + lane, v)); lanes from `count` on are 0.
template <class T, class S, class F>
void gather(const Tile<T>& tile, std::int64_t variables, StateView<const S> x, T* array, const F& f) {
  const std::int64_t step = tile.kernels.node_step(variables);
  for (std::int64_t v = 0; v < variables; ++v) {
    const S* from = x.data + tile.first * x.node_stride + v * x.variable_stride;
    T* to = array + v * tile.kernels.row_step();
    for (std::int64_t lane = 0; lane < tile.count; ++lane) to[lane * step] = f(v, from[lane * x.node_stride]);
    for (std::int64_t lane = tile.count; lane < tile.kernels.nodes; ++lane) to[lane * step] = 0;
  }
}

/// x(first + lane, v) = f(v, array(v, lane)), or += with StoreMode::add.
template <class T, class S, class F>
void scatter(const Tile<T>& tile, std::int64_t variables, const T* array, StateView<S> x, StoreMode mode, const F& f) {
  const std::int64_t step = tile.kernels.node_step(variables);
  for (std::int64_t v = 0; v < variables; ++v) {
    S* to = x.data + tile.first * x.node_stride + v * x.variable_stride;
    const T* from = array + v * tile.kernels.row_step();
    if (mode == StoreMode::store)
      for (std::int64_t lane = 0; lane < tile.count; ++lane) to[lane * x.node_stride] = f(v, from[lane * step]);
    else
      for (std::int64_t lane = 0; lane < tile.count; ++lane) to[lane * x.node_stride] += f(v, from[lane * step]);
  }
}

/// A call's result if no node has a value that is not finite.
inline constexpr std::int64_t kNoNode = std::numeric_limits<std::int64_t>::max();

/// FeedForwardTile::finish(); returns the first node with a result that is not finite, or kNoNode.
template <class T>
std::int64_t finish(const Tile<T>& tile, std::int64_t variables, T* array, const T* scale, const T* keep) {
  if (tile.kernels.finish(variables, array, scale, keep)) return kNoNode;
  for (std::int64_t lane = 0; lane < tile.count; ++lane)
    for (std::int64_t v = 0; v < variables; ++v)
      if (!std::isfinite(array[v * tile.kernels.row_step() + lane * tile.kernels.node_step(variables)]))
        return tile.first + lane;
  return kNoNode;  // only lanes without a node
}

/// tile.input = the normalised inputs, NaN where they are not finite. With T = S the arithmetic is in T, else double.
template <class T, class S>
void gather_normalised(const typename EmulatorOperators<T>::Impl& impl, const Tile<T>& tile, StateView<const S> x) {
  if constexpr (std::is_same_v<T, S>) {
    if (x.variable_stride == 1 && x.node_stride >= 0) {
      const S* rows = x.data + tile.first * x.node_stride;
      tile.kernels.from_rows(impl.n_in(), tile.count, rows, x.node_stride, tile.input);
      // Prefetch the next tile, without the gaps between its rows.
      const S* next = rows + tile.count * x.node_stride;
      for (std::int64_t lane = 0; lane < tile.count; ++lane, next += x.node_stride)
        for (std::int64_t at = 0; at < impl.n_in(); at += 64 / std::int64_t{sizeof(S)}) __builtin_prefetch(next + at);
    } else {
      gather(tile, impl.n_in(), x, tile.input, [](std::int64_t, S value) { return value; });
    }
    tile.kernels.normalise(impl.n_in(), tile.input, impl.input_mean.data(), impl.input_std.data());
  } else {
    const Moments& m = impl.emulator.moments();
    gather(tile, impl.n_in(), x, tile.input, [&](std::int64_t v, S value) {
      const auto i = static_cast<std::size_t>(v);
      const T z = static_cast<T>((static_cast<double>(value) - m.input_mean[i]) / m.input_std[i]);
      return z - z == T{0} ? z : z - z;
    });
  }
}

/// The factor of each node's derivatives: 0 where the options exclude the node or its state is not finite; NaN where
/// only its normalised state, tile.input, is not finite; else 1. Null if all are 1. The state is checked because an
/// activation's slope may be finite where its argument is not.
template <class S, class T>
const T* selected(const typename EmulatorOperators<T>::Impl& impl, const NodeSelection<S>& select, const Tile<T>& tile,
                  StateView<const S> x) {
  const OperatorOptions& options = impl.options;
  const std::int64_t nodes = tile.kernels.nodes, n_in = impl.n_in();
  const T* z = tile.input;
  T* const keep = tile.keep;
  for (std::int64_t lane = 0; lane < nodes; ++lane) keep[lane] = 1;
  const auto check = [&](std::int64_t lane, T value) { keep[lane] = value - value == T{0} ? keep[lane] : value; };
  if (tile.kernels.node_major)
    for (std::int64_t lane = 0; lane < nodes; ++lane, z += n_in)
      for (std::int64_t v = 0; v < n_in; ++v) check(lane, z[v]);
  else
    for (std::int64_t v = 0; v < n_in; ++v)
      for (std::int64_t lane = 0; lane < nodes; ++lane) check(lane, z[v * nodes + lane]);
  T all = 1;
  for (std::int64_t lane = 0; lane < nodes; ++lane) {
    const std::int64_t node = tile.first + lane;
    if (lane >= tile.count) {
      keep[lane] = 1;
    } else {
      bool in = true;
      if (select.mask) in = select.mask[node] >= options.mask_min && select.mask[node] <= options.mask_max;
      if (select.latitude) in = in && std::abs(select.latitude[node]) >= options.min_abs_latitude;
      for (std::int64_t v = 0; keep[lane] != 1 && v < n_in; ++v) in = in && std::isfinite(x.at(node, v));
      if (!in) keep[lane] = 0;
    }
    all *= keep[lane];
  }
  return all == T{1} ? nullptr : keep;
}

/// Computes the slopes of a tile's layers, tile.derivative. Returns selected().
template <class T, class S>
const T* tile_slopes(const typename EmulatorOperators<T>::Impl& impl, const Tile<T>& tile, StateView<const S> x,
                     const NodeSelection<S>& select) {
  gather_normalised<T, S>(impl, tile, x);
  tile.kernels.forward(impl.network.net, tile.input, tile.derivative, tile.scratch, tile.output);
  return selected<S, T>(impl, select, tile, x);
}

/// to = K from of a tile, or K^T from for OperatorCall::adjoint; += with StoreMode::add. Returns the node of finish().
///
/// stored  K if `jacobian`, else the slopes of the layers; tile.input and tile.output are overwritten
template <class T, class S>
std::int64_t tile_product(const typename EmulatorOperators<T>::Impl& impl, const Tile<T>& tile, OperatorCall call,
                          const T* stored, bool jacobian, const T* keep, StateView<const S> from, StateView<S> to,
                          StoreMode mode) {
  const ops::FeedForward<T>& net = impl.network.net;
  const ops::FeedForwardTile<T>& kernels = tile.kernels;
  const bool adjoint = call == OperatorCall::adjoint;
  T *const in = adjoint ? tile.output : tile.input, *const out = adjoint ? tile.input : tile.output;
  const double* scale = adjoint ? impl.emulator.moments().output_std.data() : impl.input_scale.data();
  gather(tile, adjoint ? net.n_out : net.n_in, from, in, [&](std::int64_t v, S value) {
    if (scale[v] == 0) return T{0};
    return static_cast<T>(jacobian ? static_cast<double>(value) : static_cast<double>(value) * scale[v]);
  });
  if (jacobian)
    (adjoint ? kernels.multiply_transposed : kernels.multiply)(net.n_out, net.n_in, stored, in, out);
  else
    (adjoint ? kernels.adjoint : kernels.tangent)(net, stored, in, tile.scratch, out);
  const std::int64_t rows = adjoint ? net.n_in : net.n_out;
  const std::vector<T>& factors = adjoint    ? jacobian ? impl.active : impl.input_scale_t
                                  : jacobian ? impl.ones
                                             : impl.output_std;
  const std::int64_t first = finish(tile, rows, out, factors.data(), keep);
  scatter(tile, rows, out, to, mode, [](std::int64_t, T value) { return static_cast<S>(value); });
  return first;
}

/// Computes the tile's Jacobian, scaled and masked, and passes it to emit(output, first input, number of inputs,
/// values, steps of the values from input to input and from node to node). Returns the node of finish().
template <class T, class Emit>
std::int64_t tile_jacobian(const typename EmulatorOperators<T>::Impl& impl, const Tile<T>& tile, JacobianUnits units,
                           const T* keep, const Emit& emit) {
  const ops::FeedForwardTile<T>& kernels = tile.kernels;
  const auto u = static_cast<std::size_t>(units);
  const std::int64_t in = impl.n_in(), out = impl.n_out(), step = kernels.row_step();
  std::int64_t first = kNoNode;
  kernels.forward(impl.network.net, tile.input, tile.derivative, tile.scratch, nullptr);
  if (impl.by_rows()) {
    for (std::int64_t o = 0; o < out; ++o) {
      kernels.row(impl.network.net, tile.derivative, o, tile.scratch, tile.input);
      first = std::min(first, finish(tile, in, tile.input, impl.row_scale[u].data() + o * in, keep));
      emit(o, 0, in, tile.input, step, kernels.node_step(in));
    }
  } else {
    for (std::int64_t i = 0; i < in; ++i) {
      kernels.column(impl.network.net, tile.derivative, i, tile.scratch, tile.output);
      first = std::min(first, finish(tile, out, tile.output, impl.column_scale[u].data() + i * out, keep));
      for (std::int64_t o = 0; o < out; ++o) emit(o, i, 1, tile.output + o * step, step, kernels.node_step(out));
    }
  }
  return first;
}

/// Calls body(tile) for all blocks of n nodes, in parallel. Returns the least of its results, or -1 if that is kNoNode.
/// memory  the caller's workspace; null: allocates one
template <class T, class Body>
std::int64_t for_each_tile(const typename EmulatorOperators<T>::Impl& impl, std::int64_t n, void* memory,
                           const Body& body) {
  const Workspace<T> workspace(impl, memory);
  const std::int64_t blocks = impl.blocks(n);
  const auto run = [&](std::int64_t index, int thread) { return body(workspace.tile(impl.block(n, index), thread)); };
  std::int64_t first = kNoNode;
  if (impl.options.threads == 1 ||
      n <= impl.tile->nodes) {  // entering a parallel region takes longer than some columns
    for (std::int64_t index = 0; index < blocks; ++index) first = std::min(first, run(index, 0));
  } else {
#pragma omp parallel for num_threads(impl.options.threads) schedule(static) reduction(min : first)
    for (std::int64_t index = 0; index < blocks; ++index) first = std::min(first, run(index, omp_get_thread_num()));
  }
  return first == kNoNode ? -1 : first;
}

}  // namespace emulator_tile
}  // namespace lockstep
