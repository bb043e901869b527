#pragma once
#include <string>

#include "lockstep/models/array_function.hpp"
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

/// items (slots) i64, a history with the newest item last and zeros before the first; TiSASRec: times (slots) i64, its
/// scaled times, not descending, zeros before the first -> scores (items) f32 of items 1, 2, ... as the next item.
///
/// errors  data, beginning with `what`: not a weight file of SASRec or TiSASRec, or damaged
std::unique_ptr<ArrayFunction> sasrec_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
