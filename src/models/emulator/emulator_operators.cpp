#include "lockstep/models/emulator/emulator_operators.hpp"

#include <cmath>

#include "lockstep/base/profile.hpp"
#include "models/emulator/emulator_operators_impl.hpp"

namespace lockstep {

using namespace emulator_tile;

template <class T>
TileNetwork<T>::TileNetwork(const Emulator& emulator) {
  const EmulatorArch& arch = emulator.arch();
  const auto view = [](const Param& weight, const Param& bias) {
    return ops::DenseLayer<T>{weight.shape[-1], weight.shape[0], weight.value.template data<T>(),
                              bias.value.template data<T>()};
  };
  for (std::int64_t k = 0; k <= arch.layers; ++k) {
    ops::DenseLayer<T>& layer = layers.emplace_back(view(emulator.weight(k), emulator.bias(k)));
    const ops::NodeWeights<T>& copy = copies.emplace_back(layer);
    layer.by_input = copy.by_input();
    layer.by_output = copy.by_output();
  }
  net.n_in = arch.n_in;
  net.n_out = arch.n_out;
  net.count = arch.layers + 1;
  net.layer = layers.data();
  if (arch.conv_channels > 0) net.conv = view(emulator.conv_weight(), emulator.conv_bias());
  net.activation = arch.activation;
}
template struct TileNetwork<float>;
template struct TileNetwork<double>;

namespace {
/// A copy in T with negligible weights set to 0. Weight decay shrinks the weights of a constant input without limit,
/// and products of subnormal numbers are slow.
template <class T>
Emulator without_subnormals(const Emulator& source) {
  constexpr T kNegligible = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
  Emulator emulator = source.as(dtype_of<T>::value);
  for (T& weight : emulator.params().values().template span<T>())
    if (std::abs(weight) < kNegligible) weight = 0;
  return emulator;
}
}  // namespace

template <class T>
EmulatorOperators<T>::Impl::Impl(const Emulator& source, const OperatorOptions& given)
    : emulator(without_subnormals<T>(source)),
      options(given),
      network(emulator),
      tile(&ops::feed_forward_tile<T>()),
      few{nullptr, &ops::feed_forward_nodes<T>(1), &ops::feed_forward_nodes<T>(2), &ops::feed_forward_nodes<T>(4),
          &ops::feed_forward_nodes<T>(4)} {
  const Moments& m = emulator.moments();
  const auto in = static_cast<std::size_t>(n_in()), out = static_cast<std::size_t>(n_out());
  require_usage(options.active_inputs.empty() || options.active_inputs.size() == in, "active_inputs has ",
                options.active_inputs.size(), " entries: the emulator has ", in, " inputs");
  require_usage(options.threads >= 1, "operators with ", options.threads, " threads: must be at least 1");
  input_mean.assign(m.input_mean.begin(), m.input_mean.end());
  input_std.assign(m.input_std.begin(), m.input_std.end());
  output_std.assign(m.output_std.begin(), m.output_std.end());
  ones.assign(out, 1);
  for (std::size_t i = 0; i < in; ++i) {
    const bool is_active = options.active_inputs.empty() || options.active_inputs[i] != 0;
    active.push_back(is_active ? 1 : 0);
    input_scale.push_back(is_active ? 1 / m.input_std[i] : 0);
    input_scale_t.push_back(static_cast<T>(input_scale[i]));
  }
  for (std::vector<T>& scale : row_scale) scale.resize(in * out);
  for (std::vector<T>& scale : column_scale) scale.resize(in * out);
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t i = 0; i < in; ++i) {
      row_scale[0][o * in + i] = column_scale[0][i * out + o] = active[i];
      row_scale[1][o * in + i] = column_scale[1][i * out + o] = static_cast<T>(m.output_std[o] * input_scale[i]);
    }
}

template <class T>
std::size_t EmulatorOperators<T>::Impl::tile_values() const {
  const std::int64_t rows = n_in() + n_out() + 2 * network.net.widest() + network.net.hidden_rows() + 1;
  const std::int64_t align = 64 / std::int64_t{sizeof(T)};
  return static_cast<std::size_t>((rows * tile->nodes + align - 1) / align * align);
}

template <class T>
EmulatorOperators<T>::EmulatorOperators(const Emulator& emulator, const OperatorOptions& options)
    : impl_(std::make_shared<const Impl>(emulator, options)) {}
template <class T>
const EmulatorArch& EmulatorOperators<T>::arch() const {
  return impl_->emulator.arch();
}
template <class T>
const Moments& EmulatorOperators<T>::moments() const {
  return impl_->emulator.moments();
}
template <class T>
const OperatorOptions& EmulatorOperators<T>::options() const {
  return impl_->options;
}
template <class T>
std::size_t EmulatorOperators<T>::workspace_bytes(OperatorCall) const {
  return Workspace<T>::size_bytes(*impl_);
}

template <class T>
template <class S>
void EmulatorOperators<T>::predict(std::int64_t n, StateView<const S> x, StateView<S> y, void* memory) const {
  const profile::Span span("predict");
  const Impl& impl = *impl_;
  using Wide = std::common_type_t<S, T>;
  const Moments& moments = impl.emulator.moments();
  for_each_tile<T>(impl, n, memory, [&](const Tile<T>& tile) {
    gather_normalised<T, S>(impl, tile, x);
    tile.kernels.forward(impl.network.net, tile.input, nullptr, tile.scratch, tile.output);
    scatter(tile, impl.n_out(), tile.output, y, StoreMode::store, [&](std::int64_t v, T value) {
      const auto o = static_cast<std::size_t>(v);
      return static_cast<S>(static_cast<Wide>(value) * static_cast<Wide>(moments.output_std[o]) +
                            static_cast<Wide>(moments.output_mean[o]));
    });
    return kNoNode;
  });
}

template <class T>
template <class S>
std::int64_t EmulatorOperators<T>::jacobian(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select,
                                            JacobianUnits units, S* j, void* memory) const {
  const profile::Span span("jacobian");
  const Impl& impl = *impl_;
  const std::int64_t in = impl.n_in(), size = impl.n_out() * in;
  return for_each_tile<T>(impl, n, memory, [&](const Tile<T>& tile) {
    gather_normalised<T, S>(impl, tile, x);
    const T* keep = selected<S, T>(impl, select, tile, x);
    return tile_jacobian<T>(impl, tile, units, keep,
                            [&](std::int64_t o, std::int64_t i, std::int64_t inputs, const T* values,
                                std::int64_t row_step, std::int64_t node_step) {
                              S* to = j + tile.first * size + o * in + i;
                              if constexpr (std::is_same_v<S, T>)
                                if (impl.by_rows()) return tile.kernels.to_rows(inputs, tile.count, values, to, size);
                              for (std::int64_t k = 0; k < inputs; ++k)
                                for (std::int64_t node = 0; node < tile.count; ++node)
                                  to[node * size + k] = static_cast<S>(values[k * row_step + node * node_step]);
                            });
  });
}

template <class T>
template <class S>
std::int64_t EmulatorOperators<T>::tangent(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select,
                                           StateView<const S> dx, StateView<S> dy, StoreMode mode, void* memory) const {
  const Impl& impl = *impl_;
  return for_each_tile<T>(impl, n, memory, [&](const Tile<T>& tile) {
    const T* keep = tile_slopes(impl, tile, x, select);
    return tile_product(impl, tile, OperatorCall::tangent, tile.derivative, false, keep, dx, dy, mode);
  });
}

template <class T>
template <class S>
std::int64_t EmulatorOperators<T>::adjoint(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select,
                                           StateView<const S> dy, StateView<S> dx, StoreMode mode, void* memory) const {
  const Impl& impl = *impl_;
  return for_each_tile<T>(impl, n, memory, [&](const Tile<T>& tile) {
    const T* keep = tile_slopes(impl, tile, x, select);
    return tile_product(impl, tile, OperatorCall::adjoint, tile.derivative, false, keep, dy, dx, mode);
  });
}

template class EmulatorOperators<float>;
template class EmulatorOperators<double>;

#define LOCKSTEP_OPERATORS(T, S)                                                                                  \
  template void EmulatorOperators<T>::predict(std::int64_t, StateView<const S>, StateView<S>, void*) const;       \
  template std::int64_t EmulatorOperators<T>::jacobian(std::int64_t, StateView<const S>, const NodeSelection<S>&, \
                                                       JacobianUnits, S*, void*) const;                           \
  template std::int64_t EmulatorOperators<T>::tangent(std::int64_t, StateView<const S>, const NodeSelection<S>&,  \
                                                      StateView<const S>, StateView<S>, StoreMode, void*) const;  \
  template std::int64_t EmulatorOperators<T>::adjoint(std::int64_t, StateView<const S>, const NodeSelection<S>&,  \
                                                      StateView<const S>, StateView<S>, StoreMode, void*) const;
LOCKSTEP_OPERATORS(float, float)
LOCKSTEP_OPERATORS(float, double)
LOCKSTEP_OPERATORS(double, float)
LOCKSTEP_OPERATORS(double, double)
#undef LOCKSTEP_OPERATORS

}  // namespace lockstep
