#include "lockstep/ops/feed_forward_tile.hpp"

#include "feed_forward_tile_kernels.hpp"

namespace lockstep::ops {

namespace cpu {
template <class T>
const FeedForwardTile<T>& active_feed_forward_tile() {
  return LOCKSTEP_ACTIVE(feed_forward_tile<T>());
}
template <class T>
const FeedForwardTile<T>& active_feed_forward_nodes(int nodes) {
  return LOCKSTEP_ACTIVE(feed_forward_nodes<T>(nodes));
}
}  // namespace cpu

template <class T>
NodeWeights<T>::NodeWeights(const DenseLayer<T>& layer)
    : by_input_({}, static_cast<std::size_t>(layer.in * stride(layer.out)) * sizeof(T)),
      by_output_({}, static_cast<std::size_t>(layer.out * stride(layer.in)) * sizeof(T)) {
  T *by_input = reinterpret_cast<T*>(by_input_.data()), *by_output = reinterpret_cast<T*>(by_output_.data());
  for (std::int64_t o = 0; o < layer.out; ++o)
    for (std::int64_t i = 0; i < layer.in; ++i)
      by_input[i * stride(layer.out) + o] = by_output[o * stride(layer.in) + i] = layer.weight[o * layer.in + i];
}
template class NodeWeights<float>;
template class NodeWeights<double>;

template <class T>
const FeedForwardTile<T>& feed_forward_tile() {
  return cpu::active_feed_forward_tile<T>();
}
LOCKSTEP_EACH_FLOAT(feed_forward_tile)
template <class T>
const FeedForwardTile<T>& feed_forward_nodes(int nodes) {
  return cpu::active_feed_forward_nodes<T>(nodes);
}
LOCKSTEP_EACH_FLOAT(feed_forward_nodes)

}  // namespace lockstep::ops
