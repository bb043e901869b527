#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The indices 0 .. counts.size()-1 by descending count; equal counts by ascending index.
std::vector<std::int32_t> by_count(std::span<const std::int64_t> counts);

}  // namespace lockstep
