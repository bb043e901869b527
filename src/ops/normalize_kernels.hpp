#pragma once
#include "lockstep/ops/normalize.hpp"

namespace lockstep::ops::cuda {

enum class ColumnMap { normalize, denormalize, scale, add_scaled };

/// y_mc = the map of x_mc with the column's two numbers (mean and deviation, or scale and nothing), which lie in host
/// memory. std may be null.
void map_columns(const Stream& stream, ColumnMap map, const StridedRows& y, const StridedRows& x, const double* mean,
                 const double* std);

}  // namespace lockstep::ops::cuda
