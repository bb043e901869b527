#include "lockstep/device/device.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "models/emulator/emulator_operators_impl.hpp"

namespace lockstep {

using emulator_tile::for_each_piece;
using emulator_tile::gather;
using emulator_tile::gather_normalised;
using emulator_tile::scatter;
using emulator_tile::selected;
using emulator_tile::TileMemory;
using emulator_tile::Workspace;

template <class T>
struct EmulatorLinearization<T>::Impl {
  std::shared_ptr<const typename EmulatorOperators<T>::Impl> of;
  std::int64_t n = 0;
  bool jacobian = false;
  std::int64_t rows = 0;  ///< of a piece: n_out * n_in for K, or hidden_rows for the D_k plus one for keep
  Buffer store;           ///< an array of its kernels for each piece
  T* piece_from(std::int64_t first) const { return reinterpret_cast<T*>(store.data()) + first * rows; }
};

template <class T>
EmulatorLinearization<T>::EmulatorLinearization(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <class T>
EmulatorLinearization<T>::EmulatorLinearization(EmulatorLinearization&&) noexcept = default;
template <class T>
EmulatorLinearization<T>& EmulatorLinearization<T>::operator=(EmulatorLinearization&&) noexcept = default;
template <class T>
EmulatorLinearization<T>::~EmulatorLinearization() = default;
template <class T>
std::int64_t EmulatorLinearization<T>::nodes() const {
  return impl_->n;
}
template <class T>
bool EmulatorLinearization<T>::holds_jacobian() const {
  return impl_->jacobian;
}
template <class T>
std::size_t EmulatorLinearization<T>::size_bytes() const {
  return impl_->store.size_bytes();
}
template <class T>
std::size_t EmulatorLinearization<T>::workspace_bytes() const {
  return Workspace<T>::size_bytes(*impl_->of);
}

template <class T>
template <class S>
EmulatorLinearization<T> EmulatorOperators<T>::linearize(std::int64_t n, StateView<const S> x,
                                                         const NodeSelection<S>& select) const {
  const Impl& impl = *impl_;
  const EmulatorArch& arch = impl.emulator.arch();
  auto kept = std::make_unique<typename EmulatorLinearization<T>::Impl>();
  kept->of = impl_;
  kept->n = n;
  const std::int64_t in = arch.n_in;
  kept->jacobian = arch.n_out * arch.n_in <= 2 * arch.layers * arch.hidden;
  kept->rows = kept->jacobian ? arch.n_out * arch.n_in : impl.network.net.hidden_rows() + 1;
  std::int64_t room = 0;  // of nodes
  if (n > 0) {
    const auto last = impl.piece(n, impl.pieces(n) - 1);
    room = last.first + last.kernels.nodes;
  }
  kept->store = Buffer({}, static_cast<std::size_t>(room * kept->rows) * sizeof(T));
  const Workspace<T> workspace(impl, nullptr);
  for_each_piece<T>(
      impl, n, workspace,
      [&](const ops::FeedForwardTile<T>& kernels, std::int64_t first, std::int64_t count, const TileMemory<T>& tile) {
        const std::int64_t nodes = kernels.nodes;
        gather_normalised<T, S>(impl, kernels, x, first, count, tile.input);
        const T* keep = selected(impl.options, select, kernels, first, count, tile.keep, tile.input, in);
        T* to = kept->piece_from(first);
        if (kept->jacobian) {
          const std::int64_t to_row = kernels.row_step(), to_node = kernels.node_step(kept->rows);
          emulator_tile::tile_jacobian<T>(impl, kernels, JacobianUnits::physical, tile, keep,
                                          [&](std::int64_t o, std::int64_t i, std::int64_t inputs, const T* values,
                                              std::int64_t row_step, std::int64_t node_step) {
                                            for (std::int64_t k = 0; k < inputs; ++k)
                                              for (std::int64_t node = 0; node < nodes; ++node)
                                                to[(o * in + i + k) * to_row + node * to_node] =
                                                    values[k * row_step + node * node_step];
                                          });
        } else {
          kernels.forward(impl.network.net, tile.input, to, tile.scratch, tile.output);
          T* last = to + impl.network.net.hidden_rows() * nodes;
          for (std::int64_t lane = 0; lane < nodes; ++lane) last[lane] = keep ? keep[lane] : T{1};
        }
      });
  return EmulatorLinearization<T>(std::move(kept));
}

template <class T>
template <class S>
void EmulatorLinearization<T>::tangent(StateView<const S> dx, StateView<S> dy, StoreMode mode, void* memory) const {
  const auto& impl = *impl_->of;
  const ops::FeedForward<T>& net = impl.network.net;
  const Workspace<T> workspace(impl, memory);
  for_each_piece<T>(
      impl, impl_->n, workspace,
      [&](const ops::FeedForwardTile<T>& kernels, std::int64_t first, std::int64_t count, const TileMemory<T>& tile) {
        const T* kept = impl_->piece_from(first);
        gather(kernels, net.n_in, dx, first, count, tile.input, [&](std::int64_t v, S value) {
          const double scale = impl.input_scale[static_cast<std::size_t>(v)];
          return scale == 0 ? T{0}
                            : static_cast<T>(impl_->jacobian ? static_cast<double>(value)
                                                             : static_cast<double>(value) * scale);
        });
        if (impl_->jacobian) {
          kernels.multiply(net.n_out, net.n_in, kept, tile.input, tile.output);
        } else {
          kernels.tangent(net, kept, tile.input, tile.scratch, tile.output);
          kernels.finish(net.n_out, tile.output, impl.output_std.data(), kept + net.hidden_rows() * kernels.nodes);
        }
        scatter(kernels, net.n_out, tile.output, dy, first, count, mode,
                [](std::int64_t, T value) { return static_cast<S>(value); });
      });
}

template <class T>
template <class S>
void EmulatorLinearization<T>::adjoint(StateView<const S> dy, StateView<S> dx, StoreMode mode, void* memory) const {
  const auto& impl = *impl_->of;
  const ops::FeedForward<T>& net = impl.network.net;
  const Workspace<T> workspace(impl, memory);
  for_each_piece<T>(
      impl, impl_->n, workspace,
      [&](const ops::FeedForwardTile<T>& kernels, std::int64_t first, std::int64_t count, const TileMemory<T>& tile) {
        const T* kept = impl_->piece_from(first);
        gather(kernels, net.n_out, dy, first, count, tile.output, [&](std::int64_t v, S value) {
          return static_cast<T>(impl_->jacobian ? static_cast<double>(value)
                                                : static_cast<double>(value) *
                                                      impl.emulator.moments().output_std[static_cast<std::size_t>(v)]);
        });
        if (impl_->jacobian) {
          kernels.multiply_transposed(net.n_out, net.n_in, kept, tile.output, tile.input);
        } else {
          kernels.adjoint(net, kept, tile.output, tile.scratch, tile.input);
          kernels.finish(net.n_in, tile.input, impl.input_scale_t.data(), kept + net.hidden_rows() * kernels.nodes);
        }
        scatter(kernels, net.n_in, tile.input, dx, first, count, mode,
                [](std::int64_t, T value) { return static_cast<S>(value); });
      });
}

template class EmulatorLinearization<float>;
template class EmulatorLinearization<double>;

#define LOCKSTEP_LINEARIZATION(T, S)                                                                         \
  template EmulatorLinearization<T> EmulatorOperators<T>::linearize(std::int64_t, StateView<const S>,        \
                                                                    const NodeSelection<S>&) const;          \
  template void EmulatorLinearization<T>::tangent(StateView<const S>, StateView<S>, StoreMode, void*) const; \
  template void EmulatorLinearization<T>::adjoint(StateView<const S>, StateView<S>, StoreMode, void*) const;
LOCKSTEP_LINEARIZATION(float, float)
LOCKSTEP_LINEARIZATION(float, double)
LOCKSTEP_LINEARIZATION(double, float)
LOCKSTEP_LINEARIZATION(double, double)
#undef LOCKSTEP_LINEARIZATION

}  // namespace lockstep
