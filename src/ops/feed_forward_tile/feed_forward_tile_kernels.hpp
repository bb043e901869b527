#pragma once
#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/feed_forward_tile.hpp"

namespace lockstep::ops::cpu {

LOCKSTEP_EACH_ISA(template <class T> const FeedForwardTile<T>& feed_forward_tile();
                  template <class T> const FeedForwardTile<T>& feed_forward_node();)

}  // namespace lockstep::ops::cpu
