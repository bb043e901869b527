#pragma once
#include <string>

#include "lockstep/models/sequences/sasrec.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Names of the public code. SASRec.pytorch and TiSASRec.pytorch use our names, except that a network with PyTorch's
/// MultiheadAttention stores queries, keys and values in one array.
NameRules sasrec_names();

/// Entries of a weight file that describe a network, and the inverse. Dropout and penalties are omitted.
void describe(WeightMetadata& metadata, SasRecArch arch);
/// errors  data, beginning with `what`: a missing or malformed entry, an impossible architecture
SasRecArch parse_sasrec(const WeightMetadata& metadata, const std::string& what);

}  // namespace lockstep
