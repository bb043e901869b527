#pragma once
#include <cstdint>
#include <span>

#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// y_m = scale table[ids_m], see ops/embedding.hpp. Rows with id `padding` (none if negative) give no gradient; the
/// others are noted in the tape's touched rows when the table is row-sparse. The ids outlive the tape.
/// shapes  ids (M) -> (M, C)
Var embedding(Tape& tape, const Param& table, std::span<const std::int32_t> ids, double scale = 1,
              std::int64_t padding = -1);

}  // namespace lockstep
