#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Copy rows by number: y_m = table_rows[m].
///
/// shapes   table (R, C...); y (M, C...), M = rows.size(); a number may occur more than once
/// dtypes   any, equal
/// errors   Error if the shapes do not fit or a number is not in 0..R-1
void gather_rows(Stream&, const Tensor& y, const Tensor& table, std::span<const std::int64_t> rows);

}  // namespace lockstep::ops
