#include "lockstep/device/cuda_reduce.hpp"
#include "node_rows_kernels.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
constexpr double kLeastNorm = 1e-12;

__device__ std::int64_t warp_lane() { return threadIdx.x; }

template <class T>
__device__ double square_norm(const T* row, std::int64_t columns) {
  double square = 0;
  for (std::int64_t c = warp_lane(); c < columns; c += kWarp)
    square += static_cast<double>(gpu::load(row + c)) * static_cast<double>(gpu::load(row + c));
  return gpu::warp_reduce(square);
}

/// One warp per row; a lane takes every 32nd column. The second pass over a row reads from the first-level cache.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    gather_node_rows_kernel(gpu::Earlier earlier, T* __restrict__ y, std::int64_t stride, NodeRows<T> nodes) {
  earlier.wait();
  const std::int64_t i = gpu::warp_row();
  if (i >= static_cast<std::int64_t>(nodes.rows.size()) || nodes.rows.data()[i] < 0) return;
  const T* row = nodes.x + nodes.rows.data()[i] * nodes.columns;
  const real_t<T> factor = nodes.scale == RowScale::none
                               ? real_t<T>{1}
                               : static_cast<real_t<T>>(1 / fmax(sqrt(square_norm(row, nodes.columns)), kLeastNorm));
  for (std::int64_t c = warp_lane(); c < nodes.columns; c += kWarp)
    gpu::store(y + i * stride + c, gpu::load(row + c) * factor);
}

/// One warp per row. No two warps have the same row, so additions need no atomics.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    scatter_node_rows_kernel(gpu::Earlier earlier, T* __restrict__ dx, const T* __restrict__ dy, std::int64_t stride,
                             NodeRows<T> nodes) {
  earlier.wait();
  const std::int64_t i = gpu::warp_row();
  if (i >= static_cast<std::int64_t>(nodes.rows.size()) || nodes.rows.data()[i] < 0) return;
  const std::int64_t at = nodes.rows.data()[i] * nodes.columns;
  const T *row = nodes.x + at, *slope = dy + i * stride;
  if (nodes.scale == RowScale::none) {
    for (std::int64_t c = warp_lane(); c < nodes.columns; c += kWarp) dx[at + c] += slope[c];
    return;
  }
  double dot = 0;
  for (std::int64_t c = warp_lane(); c < nodes.columns; c += kWarp)
    dot += static_cast<double>(row[c]) * static_cast<double>(slope[c]);
  dot = gpu::warp_reduce(dot);
  const double square = square_norm(row, nodes.columns), norm = sqrt(square);
  const T factor = static_cast<T>(1 / fmax(norm, kLeastNorm));  // mutant-equivalent: fmax is symmetric
  const T along = norm > kLeastNorm ? static_cast<T>(dot / square) : T{0};
  for (std::int64_t c = warp_lane(); c < nodes.columns; c += kWarp) dx[at + c] += (slope[c] - row[c] * along) * factor;
}

/// One warp per row. Memory bound: writes the rows.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    clear_node_rows_kernel(gpu::Earlier earlier, T* __restrict__ x, std::int64_t columns, RowSet rows) {
  earlier.wait();
  const std::int64_t i = gpu::warp_row();
  if (i >= rows.size()) return;
  const std::int64_t at = rows[i] * columns;
  for (std::int64_t c = warp_lane(); c < columns; c += kWarp) x[at + c] = 0;
}

/// One warp per row. Memory bound: reads x, writes y.
template <class Half>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    round_node_rows_kernel(gpu::Earlier earlier, Half* __restrict__ y, const float* __restrict__ x,
                           std::int64_t columns, RowSet rows) {
  earlier.wait();
  const std::int64_t i = gpu::warp_row();
  if (i >= rows.size()) return;
  const std::int64_t at = rows[i] * columns;
  for (std::int64_t c = warp_lane(); c < columns; c += kWarp) gpu::store(y + at + c, x[at + c]);
}

/// One thread per element of y sums the uses of its row in their order. Adjacent threads have adjacent columns.
template <class T>
__global__ void __launch_bounds__(256)
    sum_node_rows_kernel(gpu::Earlier earlier, std::int64_t count, T* __restrict__ y, std::int64_t columns,
                         const T* __restrict__ x, std::int64_t stride, const std::int64_t* __restrict__ ptr,
                         const std::int64_t* __restrict__ place) {
  earlier.wait();
  // mutant-equivalent: an element computed twice gets the same value
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    const std::int64_t n = gpu::quotient(i, columns), c = i - n * columns;
    T sum = 0;
    for (std::int64_t u = ptr[n]; u < ptr[n + 1]; ++u) sum += x[(place == nullptr ? u : place[u]) * stride + c];
    y[i] = sum;
  }
}

}  // namespace

template <class T>
void gather_node_rows(const Stream& stream, T* y, std::int64_t stride, const NodeRows<T>& nodes) {
  gpu::launch(stream, gpu::warp_per_row(std::ssize(nodes.rows)), gather_node_rows_kernel<T>, y, stride, nodes);
}
template <class T>
void scatter_node_rows(const Stream& stream, T* dx, const T* dy, std::int64_t stride, const NodeRows<T>& nodes) {
  gpu::launch(stream, gpu::warp_per_row(std::ssize(nodes.rows)), scatter_node_rows_kernel<T>, dx, dy, stride, nodes);
}
template <class T>
void clear_node_rows(const Stream& stream, T* x, std::int64_t columns, const RowSet& rows) {
  gpu::launch(stream, gpu::warp_per_row(rows.size()), clear_node_rows_kernel<T>, x, columns, rows);
}
template <class Half>
void round_node_rows(const Stream& stream, Half* y, const float* x, std::int64_t columns, const RowSet& rows) {
  gpu::launch(stream, gpu::warp_per_row(rows.size()), round_node_rows_kernel<Half>, y, x, columns, rows);
}
template <class T>
void sum_node_rows(const Stream& stream, T* y, std::int64_t columns, const T* x, std::int64_t stride,
                   std::span<const std::int64_t> ptr, std::span<const std::int64_t> place) {
  const std::int64_t count = (static_cast<std::int64_t>(ptr.size()) - 1) * columns;
  gpu::launch(stream, gpu::grid_for(count), sum_node_rows_kernel<T>, count, y, columns, x, stride, ptr.data(),
              place.empty() ? nullptr : place.data());
}

LOCKSTEP_EACH_FLOAT(scatter_node_rows, clear_node_rows, sum_node_rows)
LOCKSTEP_EACH_STORAGE(gather_node_rows)
template void round_node_rows(const Stream&, bf16*, const float*, std::int64_t, const RowSet&);
template void round_node_rows(const Stream&, f16*, const float*, std::int64_t, const RowSet&);

}  // namespace lockstep::ops::cuda
