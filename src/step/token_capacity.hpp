#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep {

/// Shard::token_capacity of a step whose largest part has this many rows: the rows, rounded up to one of eight sizes
/// between powers of two, at least 64. So steps of many lengths share few graphs.
inline std::int64_t token_capacity(std::int64_t rows) {
  constexpr std::int64_t kLeast = 64;
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)));
  const std::int64_t each = std::max(kLeast, power / 8);
  return (rows + each - 1) / each * each;
}

}  // namespace lockstep
