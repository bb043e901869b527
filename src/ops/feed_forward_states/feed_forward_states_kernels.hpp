#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/ops/feed_forward_states.hpp"

namespace lockstep::ops {

/// Outputs of a layer that a thread computes at once. Rows of weights are padded with zeros to a multiple of it.
inline constexpr std::int64_t kStatesOutputs = 16;
inline constexpr std::int64_t states_padded(std::int64_t n) {
  return (n + kStatesOutputs - 1) / kStatesOutputs * kStatesOutputs;
}

/// A layer in GPU memory. Both matrices hold its weights, so that a thread reads consecutive elements in either
/// direction.
template <class T>
struct StatesLayer {
  std::int64_t in, out;
  const T* by_input;   ///< (in, padded out)
  const T* by_output;  ///< (out, padded in)
  const T* bias;       ///< (padded out)
};

/// The argument of the kernels; all arrays are in GPU memory.
template <class T>
struct StatesNetwork {
  static constexpr std::int64_t kMostLayers = 16;
  StatesLayer<T> layer[kMostLayers];
  std::int64_t layers, activation;
  std::int64_t widest, hidden;  ///< values of the widest layer, and of all hidden layers
  const double *input_mean, *input_std, *output_mean, *output_std;
  const T* scale[2];  ///< StatesScaling::jacobian

  constexpr std::int64_t n_in() const { return layer[0].in; }
  constexpr std::int64_t n_out() const { return layer[layers - 1].out; }
  /// Values of a node in shared memory: two layers, and for a Jacobian the slopes of all hidden layers.
  constexpr std::int64_t values(bool slopes) const { return 2 * widest + (slopes ? hidden : 0); }
};

namespace cuda {

/// Nodes of a block, 64 or 16, whose values fit in its shared memory; 0 if those of 16 do not.
template <class T>
int states_nodes(const Stream& stream, const StatesNetwork<T>& net);
template <class T, class S>
void predict_states(const Stream& stream, int nodes, const StatesNetwork<T>& net, std::int64_t n, StateView<const S> x,
                    StateView<S> y);
template <class T, class S>
void jacobian_states(const Stream& stream, int nodes, const StatesNetwork<T>& net, std::int64_t n, StateView<const S> x,
                     const StatesMask<S>& mask, int units, S* j);
template <class S>
void multiply_states(const Stream& stream, std::int64_t n, std::int64_t n_out, std::int64_t n_in, const S* k,
                     StateView<const S> from, StateView<S> to, bool transposed, bool accumulate);

}  // namespace cuda
}  // namespace lockstep::ops
