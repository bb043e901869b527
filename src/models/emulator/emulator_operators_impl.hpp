#pragma once
// Shared by EmulatorOperators and EmulatorLinearization: weights in the form of the tile kernels; transfer of tiles
// from and to states.
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/ops/feed_forward_tile.hpp"

namespace lockstep {

/// The network in the form of the tile kernels: views of the emulator's weights, and their transposes.
template <class T>
struct TileNetwork {
  std::vector<std::vector<T>> transposed;
  std::vector<ops::DenseLayer<T>> layers;
  ops::FeedForward<T> net;
  /// The emulator's weights must have type T and outlive this object.
  explicit TileNetwork(const Emulator& emulator);
  TileNetwork(const TileNetwork&) = delete;
};

template <class T>
struct EmulatorOperators<T>::Impl {
  Impl(const Emulator& emulator, const OperatorOptions& options);

  Emulator emulator;  ///< a copy, in T
  OperatorOptions options;
  TileNetwork<T> network;
  std::vector<T> input_mean, input_std;
  std::vector<T> active;            ///< (n_in) 1 or 0
  std::vector<double> input_scale;  ///< (n_in) active / input_std
  std::vector<T> input_scale_t;     ///< the same as T
  std::vector<T> output_std;        ///< (n_out)
  std::vector<T> ones;              ///< (n_out)
  std::vector<T> row_scale[2];      ///< by JacobianUnits, (n_out, n_in): factors of the normalised Jacobian
  std::vector<T> column_scale[2];   ///< the same, transposed (n_in, n_out)

  std::int64_t n_in() const { return network.net.n_in; }
  std::int64_t n_out() const { return network.net.n_out; }
  /// The kernels for a call with n nodes. Few nodes go one by one: most of a tile would be idle.
  const ops::FeedForwardTile<T>& kernels(std::int64_t n) const {
    constexpr std::int64_t kFew = 12;
    return n <= kFew && network.net.conv.out == 0 ? ops::feed_forward_node<T>() : ops::feed_forward_tile<T>();
  }
  bool by_rows() const { return n_out() <= n_in(); }
  /// Elements of one thread's tile memory, for tiles of any kind.
  std::size_t tile_values() const;
};

namespace emulator_tile {

/// One thread's arrays; those of a tile of several nodes are aligned to 64 bytes.
template <class T>
struct TileMemory {
  T *input, *output, *other_input, *other_output, *scratch, *derivative, *keep;
};

/// Memory for all threads of a call: the caller's, or its own if the caller passes null.
template <class T>
class Workspace {
 public:
  Workspace(const typename EmulatorOperators<T>::Impl& impl, void* given) : impl_(impl) {
    if (!given) {
      own_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes(impl));
      given = own_.get();
    }
    base_ = reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(given) + 63) / 64 * 64);
  }
  static std::size_t size_bytes(const typename EmulatorOperators<T>::Impl& impl) {
    return impl.tile_values() * sizeof(T) * static_cast<std::size_t>(impl.options.threads) + 64;
  }
  /// For tiles of n nodes.
  TileMemory<T> of_thread(int thread, std::int64_t n) const {
    TileMemory<T> m{};
    m.input = base_ + impl_.tile_values() * static_cast<std::size_t>(thread);
    m.output = m.input + impl_.n_in() * n;
    m.other_input = m.output + impl_.n_out() * n;
    m.other_output = m.other_input + impl_.n_in() * n;
    m.scratch = m.other_output + impl_.n_out() * n;
    m.derivative = m.scratch + 2 * impl_.network.net.widest() * n;
    m.keep = m.derivative + impl_.network.net.hidden_rows() * n;
    return m;
  }

 private:
  const typename EmulatorOperators<T>::Impl& impl_;
  std::unique_ptr<std::byte[]> own_;
  T* base_;
};

/// tile(v, lane) = f(v, x(first + lane, v)); lanes from `count` on are 0.
template <class T, class S, class F>
void gather(std::int64_t variables, std::int64_t nodes, StateView<const S> x, std::int64_t first, std::int64_t count,
            T* tile, const F& f) {
  for (std::int64_t v = 0; v < variables; ++v) {
    const S* from = x.data + first * x.node_stride + v * x.variable_stride;
    T* to = tile + v * nodes;
    for (std::int64_t lane = 0; lane < count; ++lane) to[lane] = f(v, from[lane * x.node_stride]);
    for (std::int64_t lane = count; lane < nodes; ++lane) to[lane] = 0;
  }
}

/// x(first + lane, v) = f(v, tile(v, lane)), or += with StoreMode::add.
template <class T, class S, class F>
void scatter(std::int64_t variables, std::int64_t nodes, const T* tile, StateView<S> x, std::int64_t first,
             std::int64_t count, StoreMode mode, const F& f) {
  for (std::int64_t v = 0; v < variables; ++v) {
    S* to = x.data + first * x.node_stride + v * x.variable_stride;
    const T* from = tile + v * nodes;
    if (mode == StoreMode::store)
      for (std::int64_t lane = 0; lane < count; ++lane) to[lane * x.node_stride] = f(v, from[lane]);
    else
      for (std::int64_t lane = 0; lane < count; ++lane) to[lane * x.node_stride] += f(v, from[lane]);
  }
}

/// The normalised inputs of a tile. With T = S the arithmetic is in T, else in double.
template <class T, class S>
void gather_normalised(const typename EmulatorOperators<T>::Impl& impl, const ops::FeedForwardTile<T>& kernels,
                       StateView<const S> x, std::int64_t first, std::int64_t count, T* tile) {
  if constexpr (std::is_same_v<T, S>) {
    if (x.variable_stride == 1 && x.node_stride >= 0) {
      const S* rows = x.data + first * x.node_stride;
      kernels.from_rows(impl.n_in(), count, rows, x.node_stride, tile);
      // Prefetch the next tile.
      for (std::int64_t at = 0; at < count * x.node_stride; at += 64 / std::int64_t{sizeof(S)})
        __builtin_prefetch(rows + count * x.node_stride + at);
    } else {
      gather(impl.n_in(), kernels.nodes, x, first, count, tile, [](std::int64_t, S value) { return value; });
    }
    kernels.normalise(impl.n_in(), tile, impl.input_mean.data(), impl.input_std.data());
  } else {
    const Moments& m = impl.emulator.moments();
    gather(impl.n_in(), kernels.nodes, x, first, count, tile, [&](std::int64_t v, S value) {
      const auto i = static_cast<std::size_t>(v);
      return static_cast<T>((static_cast<double>(value) - m.input_mean[i]) / m.input_std[i]);
    });
  }
}

/// 1 for nodes that the options select and whose state z (n_in, nodes) is finite, else 0. The state is checked because
/// an activation's slope may be finite where its argument is not. Null if all nodes are 1.
template <class S, class T>
const T* selected(const OperatorOptions& options, const NodeSelection<S>& select, std::int64_t first,
                  std::int64_t count, T* keep, std::int64_t nodes, const T* z, std::int64_t n_in) {
  for (std::int64_t lane = 0; lane < nodes; ++lane) {
    bool in = true;
    if (lane < count && select.mask)
      in = select.mask[first + lane] >= options.mask_min && select.mask[first + lane] <= options.mask_max;
    if (lane < count && select.latitude) in = in && std::abs(select.latitude[first + lane]) >= options.min_abs_latitude;
    keep[lane] = in ? 1 : 0;
  }
  for (std::int64_t v = 0; v < n_in; ++v) {
    for (std::int64_t lane = 0; lane < nodes; ++lane) {
      const T value = z[v * nodes + lane];
      keep[lane] = value - value == T{0} ? keep[lane] : T{0};  // false for infinities and NaN
    }
  }
  T all = 1;
  for (std::int64_t lane = 0; lane < nodes; ++lane) all *= keep[lane];
  return all == T{1} ? nullptr : keep;
}

/// Computes the tile's Jacobian, scaled and masked, and passes it to emit(output, first input, number of inputs,
/// values (inputs, nodes)).
template <class T, class Emit>
void tile_jacobian(const typename EmulatorOperators<T>::Impl& impl, const ops::FeedForwardTile<T>& kernels,
                   JacobianUnits units, const TileMemory<T>& tile, const T* keep, const Emit& emit) {
  const auto u = static_cast<std::size_t>(units);
  const std::int64_t in = impl.n_in(), out = impl.n_out(), nodes = kernels.nodes;
  kernels.forward(impl.network.net, tile.input, tile.derivative, tile.scratch, nullptr);
  if (impl.by_rows()) {
    for (std::int64_t o = 0; o < out; ++o) {
      kernels.row(impl.network.net, tile.derivative, o, tile.scratch, tile.other_input);
      kernels.finish(in, tile.other_input, impl.row_scale[u].data() + o * in, keep);
      emit(o, 0, in, tile.other_input);
    }
  } else {
    for (std::int64_t i = 0; i < in; ++i) {
      kernels.column(impl.network.net, tile.derivative, i, tile.scratch, tile.other_output);
      kernels.finish(out, tile.other_output, impl.column_scale[u].data() + i * out, keep);
      for (std::int64_t o = 0; o < out; ++o) emit(o, i, 1, tile.other_output + o * nodes);
    }
  }
}

inline std::int64_t tiles_of(std::int64_t n, std::int64_t nodes) { return (n + nodes - 1) / nodes; }

/// Calls body(tile index, first node, number of nodes, this thread's memory) for all tiles of `nodes` nodes, in parallel.
template <class T, class Body>
void for_each_tile(const typename EmulatorOperators<T>::Impl& impl, std::int64_t n, std::int64_t nodes,
                   const Workspace<T>& workspace, const Body& body) {
  const std::int64_t tiles = tiles_of(n, nodes);
  const auto run = [&](std::int64_t tile, const TileMemory<T>& memory) {
    const std::int64_t first = tile * nodes;
    body(tile, first, first + nodes <= n ? nodes : n - first, memory);
  };
  if (impl.options.threads == 1 || tiles == 1) {  // entering a parallel region takes longer than a column
    const TileMemory<T> memory = workspace.of_thread(0, nodes);
    for (std::int64_t tile = 0; tile < tiles; ++tile) run(tile, memory);
    return;
  }
#pragma omp parallel num_threads(impl.options.threads)
  {
    const TileMemory<T> memory = workspace.of_thread(omp_get_thread_num(), nodes);
#pragma omp for schedule(static)
    for (std::int64_t tile = 0; tile < tiles; ++tile) run(tile, memory);
  }
}

}  // namespace emulator_tile
}  // namespace lockstep
