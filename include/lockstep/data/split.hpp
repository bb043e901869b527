#pragma once
#include <cstdint>

namespace lockstep {

/// The splits of a data set, with the values of /split in prepared files.
enum class Split : std::uint8_t { train = 0, validation = 1, test = 2 };
/// "train", "validation" or "test".
const char* name(Split split);

}  // namespace lockstep
