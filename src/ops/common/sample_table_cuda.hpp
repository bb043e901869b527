#pragma once
#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/sample_table_kernels.hpp"

namespace lockstep::ops::cuda {

/// Input or target `column` of row r, normalised. Columns from n_in on are those of y.
template <class T>
__device__ T normalised(const TableView<T>& table, std::int64_t r, std::int64_t column) {
  const bool input = column < table.n_in;
  const std::int64_t columns = input ? table.n_in : table.n_out, c = input ? column : column - table.n_in;
  const T* moments = table.moments + (input ? 0 : 2 * table.n_in);
  const float* from = input ? table.x : table.y;
  return (static_cast<T>(from[r * columns + c]) - moments[c]) / moments[columns + c];
}

}  // namespace lockstep::ops::cuda
