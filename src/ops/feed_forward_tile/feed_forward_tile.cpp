#include "lockstep/ops/feed_forward_tile.hpp"

#include "feed_forward_tile_kernels.hpp"

namespace lockstep::ops {

namespace cpu {
template <class T>
const FeedForwardTile<T>& active_feed_forward_tile() {
  return LOCKSTEP_ACTIVE(feed_forward_tile<T>());
}
template <class T>
const FeedForwardTile<T>& active_feed_forward_node() {
  return LOCKSTEP_ACTIVE(feed_forward_node<T>());
}
}  // namespace cpu

template <class T>
const FeedForwardTile<T>& feed_forward_tile() {
  return cpu::active_feed_forward_tile<T>();
}
LOCKSTEP_EACH_FLOAT(feed_forward_tile)
template <class T>
const FeedForwardTile<T>& feed_forward_node() {
  return cpu::active_feed_forward_node<T>();
}
LOCKSTEP_EACH_FLOAT(feed_forward_node)

}  // namespace lockstep::ops
