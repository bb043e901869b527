#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "lockstep/models/emulator.hpp"

namespace lockstep {

/// Element [node j, variable i] of a state is data[j * node_stride + i * variable_stride].
///
/// Nodes first (C order x[n][n_in], Fortran order x(n_in, n)): {x, ld, 1} with ld >= n_in. Variables first (x[n_in][n],
/// x(n, n_in)): {x, 1, ld}.
template <class S>
struct StateView {
  S* data = nullptr;
  std::int64_t node_stride = 0;
  std::int64_t variable_stride = 1;
  S& at(std::int64_t node, std::int64_t variable) const {
    return data[node * node_stride + variable * variable_stride];
  }
  StateView from(std::int64_t node) const { return {data + node * node_stride, node_stride, variable_stride}; }
  operator StateView<const S>() const  // NOLINT: implicit on purpose
      requires(!std::is_const_v<S>) {
    return {data, node_stride, variable_stride};
  }
};

/// Which sensitivities count at all.
struct OperatorOptions {
  std::vector<std::uint8_t> active_inputs =
      {};  ///< (n_in) 0 = background only: its column of every Jacobian is zero; empty = all active
  double mask_min =
      -std::numeric_limits<double>::infinity();  ///< nodes outside [mask_min, mask_max] have a zero Jacobian
  double mask_max = std::numeric_limits<double>::infinity();
  double min_abs_latitude = 0;  ///< degrees: nodes with |latitude| below it have a zero Jacobian
  int threads = 1;              ///< OpenMP threads per call
};

/// Per-node values that the options refer to; null where they are not given, and then nothing is masked by them.
template <class S>
struct NodeSelection {
  const S* mask = nullptr;      ///< (n) value of the mask variable
  const S* latitude = nullptr;  ///< (n) degrees
};

/// For calls that want memory: what they do.
enum class OperatorCall : std::uint8_t { predict, jacobian, tangent, adjoint };

enum class JacobianUnits : std::uint8_t {
  normalised,  ///< d y_norm / d z
  physical,    ///< d y / d x = output_std / input_std * normalised
};

enum class StoreMode : std::uint8_t { store, add };

template <class T>
class EmulatorLinearization;

/// The physical operators of an emulator: a snapshot of its weights, arranged for speed; immutable, so calls may run at
/// the same time.
///
/// T is the type of the arithmetic and of the weights inside (float | double); S that of states, float or double. All
/// loops run over tiles of nodes, lanes = nodes, so no result depends on n, on the other nodes, or on the number of
/// threads. A Jacobian is evaluated exactly: with D_k = phi'(a_k), in reverse if n_out <= n_in, else forward. Entries
/// that are not finite become 0 in Jacobians, tangents and adjoints.
///
/// Nothing is allocated when the caller gives `workspace` (workspace_bytes() bytes, any alignment, one per concurrent
/// call).
///
/// dtypes  T = float | double, S = float | double
/// source  the chain rule; Griewank, Walther 2008, "Evaluating derivatives", ch. 3
template <class T>
class EmulatorOperators {
 public:
  /// errors  usage: options.active_inputs of another length than n_in
  explicit EmulatorOperators(const Emulator& emulator, const OperatorOptions& options = {});
  const EmulatorArch& arch() const;
  const Moments& moments() const;
  const OperatorOptions& options() const;
  std::size_t workspace_bytes(OperatorCall call) const;

  /// y = M(x). shapes  x (n, n_in), y (n, n_out), physical units.
  template <class S>
  void predict(std::int64_t n, StateView<const S> x, StateView<S> y, void* workspace = nullptr) const;

  /// J[node][output][input], contiguous (n, n_out, n_in), at physical x.
  template <class S>
  void jacobian(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select, JacobianUnits units, S* j,
                void* workspace = nullptr) const;

  /// dy = K dx (or dy += K dx) at x: one forward pass and one tangent pass. Physical units.
  template <class S>
  void tangent(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select, StateView<const S> dx,
               StateView<S> dy, StoreMode mode = StoreMode::store, void* workspace = nullptr) const;
  /// dx = K^T dy (or dx += K^T dy) at x.
  template <class S>
  void adjoint(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select, StateView<const S> dy,
               StateView<S> dx, StoreMode mode = StoreMode::store, void* workspace = nullptr) const;

  /// Keeps what tangent and adjoint need at x: K itself if n_out * n_in <= 2 * layers * hidden, else the D_k.
  template <class S>
  EmulatorLinearization<T> linearize(std::int64_t n, StateView<const S> x, const NodeSelection<S>& select) const;

  struct Impl;

 private:
  friend class EmulatorLinearization<T>;
  std::shared_ptr<const Impl> impl_;
};

/// The trajectory of a linearise-once, use-often loop; immutable, so calls may run at the same time.
template <class T>
class EmulatorLinearization {
 public:
  EmulatorLinearization(EmulatorLinearization&&) noexcept;
  EmulatorLinearization& operator=(EmulatorLinearization&&) noexcept;
  ~EmulatorLinearization();
  std::int64_t nodes() const;
  bool holds_jacobian() const;     ///< K per node, rather than the D_k
  std::size_t size_bytes() const;  ///< memory held
  std::size_t workspace_bytes() const;
  /// dy = K dx, or dy += K dx. Physical units.
  template <class S>
  void tangent(StateView<const S> dx, StateView<S> dy, StoreMode mode = StoreMode::store,
               void* workspace = nullptr) const;
  /// dx = K^T dy, or dx += K^T dy.
  template <class S>
  void adjoint(StateView<const S> dy, StateView<S> dx, StoreMode mode = StoreMode::store,
               void* workspace = nullptr) const;

 private:
  friend class EmulatorOperators<T>;
  struct Impl;
  explicit EmulatorLinearization(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
