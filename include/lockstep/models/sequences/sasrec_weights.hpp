#pragma once
#include <string>

#include "lockstep/models/sequences/sasrec.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Names of the public code. Those of SASRec.pytorch and TiSASRec.pytorch are ours; a network whose attention is PyTorch's
/// MultiheadAttention keeps queries, keys and values in one array.
NameRules sasrec_names();

/// Entries of a weight file that describe a network, and the inverse. Dropout and penalties are not among them.
void describe(WeightMetadata& metadata, SasRecArch arch);
/// errors  data, beginning with `what`: a missing or malformed entry, an architecture that cannot be
SasRecArch parse_sasrec(const WeightMetadata& metadata, const std::string& what);

}  // namespace lockstep
