#pragma once
#include "lockstep/models/array_function.hpp"
#include "lockstep/models/kgat/kgat.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Names of the public code. It keeps the adjacency as a sparse matrix `A_in` of the graph; import computes it.
NameRules kgat_names();
NameRules bprmf_names();

/// Sizes of the data set.
struct KgatSizes {
  std::int64_t users = 0, items = 0, entities = 0;
};
/// Entries of a weight file that describe a network, and the inverse.
void describe(WeightMetadata& metadata, KgatArch arch, KgatSizes sizes);
/// errors  data, beginning with `what`: a missing or malformed entry, an impossible architecture
void parse(const WeightMetadata& metadata, const std::string& what, KgatArch& arch, KgatSizes& sizes);

/// Rows and columns of the tables of matrix factorisation.
struct BprmfSizes {
  std::int64_t users = 0, items = 0, width = 0;
};
/// describe() and parse() for kind bprmf.
void describe(WeightMetadata& metadata, BprmfSizes sizes);
void parse(const WeightMetadata& metadata, const std::string& what, BprmfSizes& sizes);

/// users () i64, items (K) i64, indices from 0 -> scores (K) f32: the inner products of the user's row with the items'
/// rows. K is the setting "items_per_user", 1 by default.
///
/// errors  data, beginning with `what`: not a weight file of BPRMF, or damaged
std::unique_ptr<ArrayFunction> bprmf_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
