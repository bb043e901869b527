#pragma once
#include "lockstep/models/hrm/hrm.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Entries of a weight file that describe a network, and the inverse. The public code's names of the arrays are ours.
void describe(WeightMetadata& metadata, HrmArch arch);
/// errors  data, beginning with `what`: a missing or malformed entry, an architecture that cannot be
HrmArch parse_hrm(const WeightMetadata& metadata, const std::string& what);

}  // namespace lockstep
