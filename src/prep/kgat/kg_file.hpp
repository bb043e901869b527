#pragma once
#include <cstdint>

#include "lockstep/prep/kgat/kg_set.hpp"

namespace lockstep::prep {

/// The type of an array that holds positions 0 .. entries-1: 32 bits where they suffice.
H5Type kg_index_type(std::int64_t entries);

/// Calls visit(dataset, member of Ckg, its length) for every array except rel_perm, whose type depends on its size.
void each_array(const KgSizes& sizes, std::int64_t nnz, auto visit) {
  visit("/ckg/indptr", &Ckg::indptr, sizes.nodes() + 1);
  visit("/ckg/tail", &Ckg::tail, sizes.ckg_triples());
  visit("/ckg/rel", &Ckg::rel, sizes.ckg_triples());
  visit("/ckg/rel_indptr", &Ckg::rel_indptr, sizes.relations() + 1);
  visit("/adj/indptr", &Ckg::adj_indptr, sizes.nodes() + 1);
  visit("/adj/col", &Ckg::col, nnz);
  visit("/adj/edge_ptr", &Ckg::edge_ptr, nnz + 1);
  visit("/adj/transpose", &Ckg::transpose, nnz);
  visit("/adj/random_walk", &Ckg::random_walk, nnz);
  visit("/adj/symmetric", &Ckg::symmetric, nnz);
  visit("/node/degree", &Ckg::degree, sizes.nodes());
}

}  // namespace lockstep::prep
