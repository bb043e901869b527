#include "lockstep/device/device.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "models/emulator/emulator_operators_impl.hpp"

namespace lockstep {

using namespace emulator_tile;

template <class T>
struct EmulatorLinearization<T>::Impl {
  std::shared_ptr<const typename EmulatorOperators<T>::Impl> of;
  std::int64_t n = 0;
  bool jacobian = false;
  std::int64_t rows = 0;  ///< of a block: n_out * n_in for K, hidden_rows for the D_k, plus one for `keep`
  Buffer store;           ///< per block an array in the layout of its kernels
  T* block_at(std::int64_t first) const { return reinterpret_cast<T*>(store.data()) + first * rows; }
  const T* keep_of(const Tile<T>& tile) const { return block_at(tile.first) + (rows - 1) * tile.kernels.nodes; }
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
  auto stored = std::make_unique<typename EmulatorLinearization<T>::Impl>();
  stored->of = impl_;
  stored->n = n;
  const std::int64_t in = arch.n_in;
  stored->jacobian = arch.n_out * arch.n_in <= 2 * arch.layers * arch.hidden;
  stored->rows = 1 + (stored->jacobian ? arch.n_out * arch.n_in : impl.network.net.hidden_rows());
  std::int64_t capacity = 0;  // nodes
  if (n > 0) {
    const auto last = impl.block(n, impl.blocks(n) - 1);
    capacity = last.first + last.kernels.nodes;
  }
  stored->store = Buffer({}, static_cast<std::size_t>(capacity * stored->rows) * sizeof(T));
  for_each_tile<T>(impl, n, nullptr, [&](const Tile<T>& tile) {
    const std::int64_t nodes = tile.kernels.nodes;
    gather_normalised<T, S>(impl, tile, x);
    const T* keep = selected<S, T>(impl, select, tile, x);
    T* to = stored->block_at(tile.first);
    T* last = to + (stored->rows - 1) * nodes;
    for (std::int64_t lane = 0; lane < nodes; ++lane) last[lane] = keep ? keep[lane] : T{1};
    if (stored->jacobian) {
      const std::int64_t to_row = tile.kernels.row_step(), to_node = tile.kernels.node_step(arch.n_out * in);
      tile_jacobian<T>(impl, tile, JacobianUnits::physical, keep,
                       [&](std::int64_t o, std::int64_t i, std::int64_t inputs, const T* values, std::int64_t row_step,
                           std::int64_t node_step) {
                         for (std::int64_t k = 0; k < inputs; ++k)
                           for (std::int64_t node = 0; node < nodes; ++node)
                             to[(o * in + i + k) * to_row + node * to_node] = values[k * row_step + node * node_step];
                       });
    } else {
      tile.kernels.forward(impl.network.net, tile.input, to, tile.scratch, tile.output);
    }
    return kNoNode;  // the products report it
  });
  return EmulatorLinearization<T>(std::move(stored));
}

template <class T>
template <class S>
std::int64_t EmulatorLinearization<T>::tangent(StateView<const S> dx, StateView<S> dy, StoreMode mode,
                                               void* memory) const {
  return for_each_tile<T>(*impl_->of, impl_->n, memory, [&](const Tile<T>& tile) {
    return tile_product(*impl_->of, tile, OperatorCall::tangent, impl_->block_at(tile.first), impl_->jacobian,
                        impl_->keep_of(tile), dx, dy, mode);
  });
}

template <class T>
template <class S>
std::int64_t EmulatorLinearization<T>::adjoint(StateView<const S> dy, StateView<S> dx, StoreMode mode,
                                               void* memory) const {
  return for_each_tile<T>(*impl_->of, impl_->n, memory, [&](const Tile<T>& tile) {
    return tile_product(*impl_->of, tile, OperatorCall::adjoint, impl_->block_at(tile.first), impl_->jacobian,
                        impl_->keep_of(tile), dy, dx, mode);
  });
}

template class EmulatorLinearization<float>;
template class EmulatorLinearization<double>;

#define LOCKSTEP_LINEARIZATION(T, S)                                                                                 \
  template EmulatorLinearization<T> EmulatorOperators<T>::linearize(std::int64_t, StateView<const S>,                \
                                                                    const NodeSelection<S>&) const;                  \
  template std::int64_t EmulatorLinearization<T>::tangent(StateView<const S>, StateView<S>, StoreMode, void*) const; \
  template std::int64_t EmulatorLinearization<T>::adjoint(StateView<const S>, StateView<S>, StoreMode, void*) const;
LOCKSTEP_LINEARIZATION(float, float)
LOCKSTEP_LINEARIZATION(float, double)
LOCKSTEP_LINEARIZATION(double, float)
LOCKSTEP_LINEARIZATION(double, double)
#undef LOCKSTEP_LINEARIZATION

}  // namespace lockstep
