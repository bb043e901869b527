#pragma once
#include <cstdint>

namespace lockstep {

/// Which part of a data set; the values are those of the prepared files' /split.
enum class Split : std::uint8_t { train = 0, validation = 1, test = 2 };
/// "train", "validation" or "test".
const char* name(Split split);

}  // namespace lockstep
