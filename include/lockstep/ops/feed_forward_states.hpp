#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/feed_forward_tile.hpp"
#include "lockstep/ops/state_view.hpp"

namespace lockstep::ops {

/// What the kernels of FeedForwardStates read besides the weights. All arrays are in host memory.
template <class T>
struct StatesScaling {
  std::span<const double> input_mean, input_std, output_mean, output_std;
  /// (n_out, n_in): factors of the Jacobian of normalised outputs by normalised inputs, for two choices of units. 0
  /// excludes an entry of the Jacobian.
  std::span<const T> jacobian[2];
};

/// The nodes of a call that have a Jacobian: those whose mask value lies in [min, max]. A null mask selects all.
template <class S>
struct StatesMask {
  const S* mask = nullptr;  ///< (n), in GPU memory
  double min = 0, max = 0;
};

/// A feed-forward network on a GPU, applied to states in GPU memory in physical units:
///
///   y = output_mean + output_std network((x - input_mean) / input_std),   J_oi = jacobian_oi d network_o / d z_i
///
/// One kernel computes a call: a block holds all values of 64 nodes, or of 16 of a larger network, in shared memory.
/// Each sum is one chain of fused multiply-adds in ascending order, so the results of a node depend on that node alone.
/// Immutable: threads and streams may share it.
///
/// dtypes   T, of the network's arithmetic, and S, of the states: float | double. If they differ, states are normalised
///          in double
/// errors   Error (usage): no GPU, more than 15 hidden layers, or values of 16 nodes that do not fit in the shared
///          memory of a block
template <class T>
class FeedForwardStates {
 public:
  /// net   without a convolution, weights in host memory
  FeedForwardStates(Device gpu, const FeedForward<T>& net, const StatesScaling<T>& scaling);
  FeedForwardStates(FeedForwardStates&&) noexcept;
  ~FeedForwardStates();
  /// NaN where the state is not finite.
  ///
  /// shapes   x (n, n_in), y (n, n_out)
  template <class S>
  void predict(const Stream& stream, std::int64_t n, StateView<const S> x, StateView<S> y) const;
  /// By rows (adjoints) if n_out <= n_in, else by columns (tangents). Excluded entries are -0: outside the mask, where
  /// the state is not finite, and where StatesScaling::jacobian is 0. No other entry is -0; one that overflows is not
  /// finite.
  ///
  /// shapes   x (n, n_in), j (n, n_out, n_in)
  /// source   the chain rule; Griewank, Walther 2008, "Evaluating derivatives", ch. 3
  template <class S>
  void jacobian(const Stream& stream, std::int64_t n, StateView<const S> x, const StatesMask<S>& mask, int units,
                S* j) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

enum class Transposed : std::uint8_t { no, yes };

/// to_j = K_j from_j, or K_j' from_j, with a matrix K_j (n_out, n_in) for each node j; added to `to` if `accumulate`.
/// Entries -0 of K contribute nothing, whatever `from` holds there: FeedForwardStates::jacobian marks excluded entries
/// so. A value of `from` that is not finite makes all other results that it enters not finite. All arrays are in GPU
/// memory. Memory bound: reads K once.
template <class S>
void multiply_states(const Stream& stream, std::int64_t n, std::int64_t n_out, std::int64_t n_in, const S* k,
                     StateView<const S> from, StateView<S> to, Transposed transposed, bool accumulate);

}  // namespace lockstep::ops
