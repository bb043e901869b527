#pragma once
#include "lockstep/ops/node_rows.hpp"

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
