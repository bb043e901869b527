#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/models/emulator/emulator.hpp"
#include "lockstep/ops/feed_forward_states.hpp"
#include "lockstep/ops/state_view.hpp"

namespace lockstep {

/// Restricts the sensitivities: masked nodes and inactive inputs have a zero Jacobian.
struct OperatorOptions {
  /// (n_in): 0 for a background-only input, whose column of every Jacobian is zero; empty: all are active
  std::vector<std::uint8_t> active_inputs = {};
  /// Nodes whose mask value lies outside [mask_min, mask_max] have a zero Jacobian.
  double mask_min = -std::numeric_limits<double>::infinity();
  double mask_max = std::numeric_limits<double>::infinity();
  double min_abs_latitude = 0;  ///< degrees: nodes with |latitude| below it have a zero Jacobian
  int threads = 1;              ///< OpenMP threads per call
};

/// Per-node values for the limits of OperatorOptions. A null pointer masks nothing.
template <class S>
struct NodeSelection {
  const S* mask = nullptr;      ///< (n), value of the mask variable
  const S* latitude = nullptr;  ///< (n), degrees
};

/// The operation that a workspace is for.
enum class OperatorCall : std::uint8_t { predict, jacobian, tangent, adjoint };

enum class JacobianUnits : std::uint8_t {
  normalised,  ///< d y_norm / d z
  physical,    ///< d y / d x = output_std / input_std * normalised
};

enum class StoreMode : std::uint8_t { store, add };

template <class T>
class EmulatorLinearization;

/// An emulator's prediction, Jacobian K = dy/dx, tangent and adjoint in physical units, on a snapshot of its weights.
/// Immutable: calls may run concurrently.
///
/// T is the type of the weights and the arithmetic, S the type of the states. Each vector lane computes one node, so no
/// result depends on n, on other nodes or on the number of threads. The Jacobian is exact: the chain rule with
/// D_k = phi'(a_k), in reverse mode if n_out <= n_in, else in forward mode.
///
/// Derivatives are 0 at nodes that OperatorOptions exclude or whose state is not finite, and for inactive inputs,
/// whatever dx and dy hold there. At all other nodes a derivative that is not finite, because dx or dy is not or
/// because it overflows, stays so; jacobian, tangent and adjoint return the first such node, or -1. Predictions are
/// computed at all nodes, and are NaN where the state is not finite.
///
/// A call does not allocate if the caller passes a `workspace` of workspace_bytes() bytes, of any alignment, one per
/// concurrent call.
///
/// dtypes  T = float | double, S = float | double
/// source  the chain rule; Griewank, Walther 2008, "Evaluating derivatives", ch. 3
template <class T>
class EmulatorOperators {
 public:
  /// errors  usage: options.active_inputs does not have n_in entries, options.threads < 1
  explicit EmulatorOperators(const Emulator& emulator, const OperatorOptions& options = {});
  const EmulatorArch& arch() const;
  const Moments& moments() const;
  const OperatorOptions& options() const;
  std::size_t workspace_bytes(OperatorCall call) const;

  /// y = M(x). shapes  x (n, n_in), y (n, n_out), physical units.
  template <class S>
  void predict(std::int64_t n, StateView<const S> x, StateView<S> y, void* workspace = nullptr) const;

  /// j (n, n_out, n_in), contiguous: dy/dx at physical x, in the given units.
  template <class S>
  std::int64_t jacobian(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select, JacobianUnits units, S* j,
                        void* workspace = nullptr) const;

  /// dy = K dx, or dy += K dx, at x: one forward pass and one tangent pass. Physical units.
  template <class S>
  std::int64_t tangent(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select, StateView<const S> dx,
                       StateView<S> dy, StoreMode mode = StoreMode::store, void* workspace = nullptr) const;
  /// dx = K^T dy (or dx += K^T dy) at x.
  template <class S>
  std::int64_t adjoint(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select, StateView<const S> dy,
                       StateView<S> dx, StoreMode mode = StoreMode::store, void* workspace = nullptr) const;

  /// Stores the linearisation at x for tangents and adjoints: K if n_out * n_in <= 2 * layers * hidden, else the D_k.
  template <class S>
  EmulatorLinearization<T> linearize(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select) const;

  /// A copy of network, moments and active inputs in the memory of a GPU. Its units of a Jacobian are those of
  /// JacobianUnits; a convolution becomes a dense layer.
  /// errors  see FeedForwardStates
  ops::FeedForwardStates<T> on_gpu(Device gpu) const;

  struct Impl;

 private:
  friend class EmulatorLinearization<T>;
  std::shared_ptr<const Impl> impl_;
};

/// A linearisation at fixed states, for many tangents and adjoints. Immutable: calls may run concurrently. Both forms
/// treat excluded nodes and values that are not finite as EmulatorOperators does.
template <class T>
class EmulatorLinearization {
 public:
  EmulatorLinearization(EmulatorLinearization&&) noexcept;
  EmulatorLinearization& operator=(EmulatorLinearization&&) noexcept;
  ~EmulatorLinearization();
  std::int64_t nodes() const;
  bool holds_jacobian() const;     ///< true: stores K; false: stores the D_k
  std::size_t size_bytes() const;  ///< memory held
  std::size_t workspace_bytes() const;
  /// dy = K dx, or dy += K dx. Physical units.
  template <class S>
  std::int64_t tangent(StateView<const S> dx, StateView<S> dy, StoreMode mode = StoreMode::store,
                       void* workspace = nullptr) const;
  /// dx = K^T dy, or dx += K^T dy.
  template <class S>
  std::int64_t adjoint(StateView<const S> dy, StateView<S> dx, StoreMode mode = StoreMode::store,
                       void* workspace = nullptr) const;

 private:
  friend class EmulatorOperators<T>;
  struct Impl;
  explicit EmulatorLinearization(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
