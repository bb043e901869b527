#pragma once
#include "lockstep/models/hrm/hrm.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Entries of a weight file that describe a network, and the inverse. The arrays have the names of the public code.
void describe(WeightMetadata& metadata, HrmArch arch);
/// errors  data, beginning with `what`: a missing or malformed entry, an impossible architecture
HrmArch parse_hrm(const WeightMetadata& metadata, const std::string& what);

}  // namespace lockstep
