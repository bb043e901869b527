#include "models/emulator_fused.hpp"

#include <algorithm>
#include <span>

#include "models/emulator_operators_impl.hpp"

namespace lockstep {
namespace {

using emulator_tile::Kernels;
using emulator_tile::LayerGradient;
using emulator_tile::Net;

/// What the backward needs of the forward, all in the arena.
template <class T>
struct Kept {
  const Kernels<T>* kernels = nullptr;
  Net<T> net;
  const Param* const* params = nullptr;  ///< conv weight and bias (null without), then weight and bias of each layer
  std::int64_t rows = 0;
  T* z = nullptr;        ///< per tile (n_in, nodes)
  T* h = nullptr;        ///< per tile (hidden_rows, nodes)
  T* d = nullptr;        ///< the same
  T* dy = nullptr;       ///< (n_out, nodes), scratch
  T* scratch = nullptr;  ///< (2 widest, nodes)
  T* turned = nullptr;
  LayerGradient<T>* gradients = nullptr;
};

template <class T>
T* take(Tape& tape, std::int64_t values) {
  return static_cast<T*>(tape.arena().allocate(static_cast<std::size_t>(values) * sizeof(T)));
}

template <class T>
void backward(Tape& tape, const Kept<T>& kept, const Tensor& dy) {
  const Net<T>& net = kept.net;
  const std::int64_t nodes = kept.kernels->nodes;
  const auto target = [&](const Param* p) -> T* {
    const Target to = p ? tape.grad_of(*p) : Target{};
    return to ? to.tensor.template data<T>() : nullptr;
  };
  for (std::int64_t k = 0; k <= net.count; ++k)
    kept.gradients[k] = {target(kept.params[2 * k]), target(kept.params[2 * k + 1])};
  const T* from = dy.data<T>();
  for (std::int64_t first = 0, tile = 0; first < kept.rows; first += nodes, ++tile) {
    const std::int64_t count = std::min(nodes, kept.rows - first);
    kept.kernels->from_rows(net.n_out, count, from + first * net.n_out, net.n_out, kept.dy);
    const std::int64_t at = tile * net.hidden_rows() * nodes;
    kept.kernels->gradient(net, kept.z + tile * net.n_in * nodes, kept.h + at, kept.d + at, kept.dy, kept.scratch,
                           kept.turned, kept.gradients);
  }
}

template <class T>
Var forward(Tape& tape, const Emulator& emulator, const Tensor& z) {
  const EmulatorArch& arch = emulator.arch();
  const bool records = tape.mode() == Tape::Mode::train;
  Kept<T> kept;
  kept.kernels = &emulator_tile::kernels<T>();
  kept.rows = z.rows();
  const std::int64_t layers = arch.layers + 1, nodes = kept.kernels->nodes, tiles = (kept.rows + nodes - 1) / nodes;

  auto* layer = static_cast<emulator_tile::Layer<T>*>(
      tape.arena().allocate(static_cast<std::size_t>(layers + 1) * sizeof(emulator_tile::Layer<T>)));
  auto* params = static_cast<const Param**>(
      tape.arena().allocate(static_cast<std::size_t>(2 * layers + 2) * sizeof(const Param*)));
  const auto view = [](const Param& weight, const Param& bias) {
    return emulator_tile::Layer<T>{weight.shape[-1], weight.shape[0], weight.value.template data<T>(),
                                   bias.value.template data<T>()};
  };
  const bool conv = arch.conv_channels > 0;
  params[0] = conv ? &emulator.conv_weight() : nullptr;
  params[1] = conv ? &emulator.conv_bias() : nullptr;
  for (std::int64_t k = 0; k < layers; ++k) {
    params[2 + 2 * k] = &emulator.weight(k);
    params[3 + 2 * k] = &emulator.bias(k);
    layer[k] = view(emulator.weight(k), emulator.bias(k));
  }
  kept.net.n_in = arch.n_in;
  kept.net.n_out = arch.n_out;
  kept.net.count = layers;
  kept.net.layer = layer;
  if (conv) kept.net.conv = view(emulator.conv_weight(), emulator.conv_bias());
  kept.net.activation = ops::parse_activation(arch.activation);
  kept.params = params;

  const std::int64_t hidden = kept.net.hidden_rows(), kept_tiles = records ? tiles : 1;
  kept.z = take<T>(tape, kept_tiles * arch.n_in * nodes);
  kept.dy = take<T>(tape, arch.n_out * nodes);
  kept.scratch = take<T>(tape, 2 * kept.net.widest() * nodes);
  if (records) {
    kept.h = take<T>(tape, tiles * hidden * nodes);
    kept.d = take<T>(tape, tiles * hidden * nodes);
    kept.turned = take<T>(tape, (kept.net.widest() + 64) * nodes);
    kept.gradients = static_cast<LayerGradient<T>*>(
        tape.arena().allocate(static_cast<std::size_t>(layers + 1) * sizeof(LayerGradient<T>)));
  }
  const Var y = tape.output({kept.rows, arch.n_out}, records);
  for (std::int64_t first = 0, tile = 0; first < kept.rows; first += nodes, ++tile) {
    const std::int64_t count = std::min(nodes, kept.rows - first), at = tile * hidden * nodes;
    T* tile_z = kept.z + (records ? tile * arch.n_in * nodes : 0);
    kept.kernels->from_rows(arch.n_in, count, z.data<T>() + first * arch.n_in, arch.n_in, tile_z);
    kept.kernels->forward(kept.net, tile_z, records ? kept.h + at : nullptr, records ? kept.d + at : nullptr,
                          kept.scratch, kept.dy);
    kept.kernels->to_rows(arch.n_out, count, kept.dy, y.value().data<T>() + first * arch.n_out, arch.n_out);
  }
  tape.record("emulator", y, std::span<const Param* const>(params, static_cast<std::size_t>(2 * layers + 2)),
              [=, &tape] { backward(tape, kept, y.grad()); });
  return y;
}

}  // namespace

Var fused_forward(Tape& tape, const Emulator& emulator, const Tensor& z) {
  require(z.columns() == emulator.arch().n_in && z.dtype() == emulator.dtype() && tape.dtype() == emulator.dtype(),
          "emulator: inputs are ", z.shape(), " of ", z.dtype(), ", expected (N, ", emulator.arch().n_in, ") of ",
          emulator.dtype());
  return visit_float(z.dtype(), [&]<class T>() { return forward<T>(tape, emulator, z); });
}

}  // namespace lockstep
