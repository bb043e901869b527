#pragma once
#include <cstdint>
#include <span>

#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/sample_rows.hpp"

namespace lockstep {

/// y_m = scale table[ids_m], see ops/embedding.hpp. Entries with id `padding` (none if negative) contribute no
/// gradient. If the table is row-sparse, the backward records the other ids as touched rows. The ids must outlive the
/// tape.
///
/// shapes   ids (M), table (R, C) -> (M, C)
Var embedding(Tape& tape, const Param& table, std::span<const std::int32_t> ids, double scale = 1,
              std::int64_t padding = -1);

/// The arguments of embedding().
struct TableRows {
  const Param* table = nullptr;
  std::span<const std::int32_t> ids = {};
  double scale = 1;
  std::int64_t padding = -1;
};
/// y = dropout(embedding(a) + embedding(b)) in one pass, see ops/embedding.hpp. b may have no table. If a layer norm is
/// the first operation on y, its backward pass also multiplies by the mask; a layer norm that comes later is an error.
Var embedding_sum(Tape& tape, const TableRows& a, const TableRows& b, const ops::Dropout& dropout,
                  const ops::SampleRows& rows);
/// The rows of two dense tables of one shape, side by side, with dropout, see ops/embedding.hpp. The second table
/// adjoins the first (ParamStore::add_adjoining()).
///
/// shapes   ids (M), tables (R, C) -> (M, 2 C)
Var embedding_pair(Tape& tape, const Param& first, const Param& second, std::span<const std::int32_t> ids,
                   const ops::Dropout& dropout, const ops::SampleRows& rows);

using ops::Dropout;
using ops::SampleRows;

/// Dropout, see ops/dropout.hpp; x itself if the rate is 0. The backward draws the mask again instead of storing it.
Var dropout(Tape& tape, Var x, const Dropout& dropout, const SampleRows& rows);

}  // namespace lockstep
