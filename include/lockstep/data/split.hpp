#pragma once
#include <array>
#include <cstdint>

#include "lockstep/base/named.hpp"

namespace lockstep {

/// The splits of a data set, with the values of /split in prepared files.
enum class Split : std::uint8_t { train = 0, validation = 1, test = 2 };
constexpr auto names_of(Split) { return std::array{"train", "validation", "test"}; }

}  // namespace lockstep
