#include "lockstep/data/by_count.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {

std::vector<std::int32_t> by_count(std::span<const std::int64_t> counts) {
  std::vector<std::int32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::int32_t n) { return counts[n]; });
  return order;
}

}  // namespace lockstep
