#include "tasks/kgat/node_cut.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/comm/tree_reduce.hpp"

namespace lockstep {

NodeCut::NodeCut(std::span<const std::int64_t> indptr, std::int64_t segments, int ranks) {
  require(segments > 0 && ranks > 0 && !indptr.empty(), "cutting ", indptr.size(), " row offsets into ", segments,
          " segments for ", ranks, " ranks");
  const auto nodes = static_cast<std::int64_t>(indptr.size()) - 1;
  const auto cost_before = [&](std::int64_t node) {
    return indptr[static_cast<std::size_t>(node)] - indptr[0] + kRowCost * node;
  };
  const std::int64_t total = cost_before(nodes);
  begin_.push_back(0);
  for (std::int64_t s = 1; s <= segments; ++s) {
    // total * s / segments without overflow: total may have 62 bits.
    const std::int64_t wanted = total / segments * s + total % segments * s / segments;
    std::int64_t low = begin_.back(), high = nodes;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      cost_before(middle) < wanted ? low = middle + 1 : high = middle;
    }
    begin_.push_back(s == segments ? nodes : low);
  }
  first_segment_.push_back(0);
  for (int r = 0; r < ranks; ++r) first_segment_.push_back(shards_of(segments, r, ranks).end);
}

}  // namespace lockstep
