#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The numbers 0 .. counts.size()-1, the largest count first; ties: the smaller number first.
std::vector<std::int32_t> by_count(std::span<const std::int64_t> counts);

}  // namespace lockstep
