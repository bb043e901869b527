#pragma once
#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/node_rows.hpp"

namespace lockstep::ops::cpu {

/// Kernels for one row of n columns and RowScale::norm; sums in f64.
template <class T>
struct NodeRowKernels {
  /// to = row / max(|row|, 1e-12)
  void (*normalise)(std::int64_t n, T* to, const T* row);
  /// to += the gradient of `row` for the gradient `slope` of the normalised row.
  void (*add_gradient)(std::int64_t n, T* to, const T* slope, const T* row);
};

LOCKSTEP_KERNELS(NodeRowKernels, node_row_kernels)

}  // namespace lockstep::ops::cpu

/// Kernels of node_rows.hpp. Rows of an array are `stride` elements apart.
namespace lockstep::ops::cuda {

template <class T>
struct NodeRows {
  const T* x;
  std::int64_t columns;
  std::span<const std::int32_t> rows;
  RowScale scale;
};
template <class T>
void gather_node_rows(const Stream& stream, T* y, std::int64_t stride, const NodeRows<T>& nodes);
template <class T>
void scatter_node_rows(const Stream& stream, T* dx, const T* dy, std::int64_t stride, const NodeRows<T>& nodes);
template <class T>
void clear_node_rows(const Stream& stream, T* x, std::int64_t columns, const RowSet& rows);
/// Half: bf16 | f16.
template <class Half>
void round_node_rows(const Stream& stream, Half* y, const float* x, std::int64_t columns, const RowSet& rows);
template <class T>
void sum_node_rows(const Stream& stream, T* y, std::int64_t columns, const T* x, std::int64_t stride,
                   std::span<const std::int64_t> ptr, std::span<const std::int64_t> place);

}  // namespace lockstep::ops::cuda
