#include "lockstep/ops/node_rows.hpp"

#include "lockstep/ops/dispatch.hpp"
#include "ops/common/map.hpp"

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

namespace lockstep::ops {

/// Rows with a smaller norm are divided by this.
inline constexpr double kLeastNorm = 1e-12;

/// Zeroes the rows of x.
template <class T>
struct ClearRows {
  T* x;
  std::int64_t columns;
  RowSet rows;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    T* const row = x + rows[at.row] * columns;
    at.put(row, decltype(at.get(row)){});
  }
};

LOCKSTEP_MAPS(ClearRows)

}  // namespace lockstep::ops

#ifdef LOCKSTEP_ISA
#include "ops/common/f64_sums.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void normalise(std::int64_t n, T* __restrict__ to, const T* __restrict__ row) {
  const double norm = __builtin_sqrt(dot(n, row, row));
  const T factor = static_cast<T>(1 / (norm > kLeastNorm ? norm : kLeastNorm));
  for (std::int64_t c = 0; c < n; ++c) to[c] = row[c] * factor;
}

template <class T>
void add_gradient(std::int64_t n, T* __restrict__ to, const T* __restrict__ slope, const T* __restrict__ row) {
  const double square = dot(n, row, row), norm = __builtin_sqrt(square);
  const T factor = static_cast<T>(1 / (norm > kLeastNorm ? norm : kLeastNorm));
  const T along = norm > kLeastNorm ? static_cast<T>(dot(n, row, slope) / square) : T{0};
  for (std::int64_t c = 0; c < n; ++c) to[c] += (slope[c] - row[c] * along) * factor;
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(NodeRowKernels, node_row_kernels, normalise<T>, add_gradient<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/f16.hpp"
#include "lockstep/device/cuda_reduce.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;

template <class T>
struct NodeRows {
  const T* x;
  std::int64_t columns;
  std::span<const std::int32_t> rows;
  RowScale scale;
};

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
  const T factor = static_cast<T>(1 / fmax(norm, kLeastNorm));
  const T along = norm > kLeastNorm ? static_cast<T>(dot / square) : T{0};
  for (std::int64_t c = warp_lane(); c < nodes.columns; c += kWarp) dx[at + c] += (slope[c] - row[c] * along) * factor;
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
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    const std::int64_t n = gpu::quotient(i, columns), c = i - n * columns;
    T sum = 0;
    for (std::int64_t u = ptr[n]; u < ptr[n + 1]; ++u) sum += x[(place == nullptr ? u : place[u]) * stride + c];
    y[i] = sum;
  }
}

/// Prefetch distance in rows that are scattered over memory.
constexpr std::int64_t kPrefetch = 8, kLine = 64;

template <class T>
void prefetch(const T* row, std::int64_t width) {
  for (std::int64_t c = 0; c < width; c += kLine / static_cast<std::int64_t>(sizeof(T))) __builtin_prefetch(row + c);
}

void require_part(const char* op, const Tensor& x, const Tensor& y, std::int64_t column, std::size_t rows) {
  require(y.rows() == static_cast<std::int64_t>(rows) && column >= 0 && column + x.columns() <= y.columns() &&
              x.dtype() == y.dtype(),
          op, ": ", rows, " rows of ", x.shape(), " of ", x.dtype(), " as columns from ", column, " of ", y.shape(),
          " of ", y.dtype());
}
}  // namespace

void gather_node_rows(Stream& stream, const Tensor& y, std::int64_t column, const Tensor& x,
                      std::span<const std::int32_t> rows, RowScale scale) {
  require_part("gather_node_rows", x, y, column, rows.size());
  const std::int64_t width = x.columns(), stride = y.columns();
  on_gpu(x, [&]<class T>() {
    gpu::launch(stream, gpu::warp_per_row(std::ssize(rows)), gather_node_rows_kernel<T>, y.data<T>() + column, stride,
                NodeRows<T>{x, width, rows, scale});
  });
  on_cpu(x, [&]<class T>() {
    T* first = y.data<T>() + column;
    const T* from = x.data<const T>();
    const auto count = std::ssize(rows);
    const auto kernels = cpu::active_node_row_kernels<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      if (i + kPrefetch < count) prefetch(from + rows[i + kPrefetch] * width, width);
      T* to = first + i * stride;
      const T* row = from + rows[i] * width;
      if (scale == RowScale::none) {
        std::copy_n(row, width, to);
        continue;
      }
      kernels.normalise(width, to, row);
    }
  });
}

void scatter_node_rows(Stream& stream, const Tensor& dx, const Tensor& dy, std::int64_t column, const Tensor& x,
                       std::span<const std::int32_t> rows, RowScale scale) {
  require_part("scatter_node_rows", x, dy, column, rows.size());
  require(dx.shape() == x.shape() && dx.dtype() == x.dtype(), "scatter_node_rows: x ", x.shape(), ", dx ", dx.shape());
  const std::int64_t width = x.columns(), stride = dy.columns();
  on_gpu_in_floats(x, [&]<class T>() {
    gpu::launch(stream, gpu::warp_per_row(std::ssize(rows)), scatter_node_rows_kernel<T>, dx.data<T>(),
                dy.data<const T>() + column, stride, NodeRows<T>{x, width, rows, scale});
  });
  on_cpu(x, [&]<class T>() {
    const T *first = dy.data<const T>() + column, *from = x.data<const T>();
    const auto count = std::ssize(rows);
    const auto kernels = cpu::active_node_row_kernels<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = rows[i] * width;
      if (i + kPrefetch < count) {
        const std::int64_t next = rows[i + kPrefetch] * width;
        prefetch(from + next, width);
        prefetch(dx.data<T>() + next, width);
        prefetch(first + (i + kPrefetch) * stride, width);
      }
      const T *slope = first + i * stride, *row = from + at;
      T* to = dx.data<T>() + at;
      if (scale == RowScale::none) {
        for (std::int64_t c = 0; c < width; ++c) to[c] += slope[c];
        continue;
      }
      kernels.add_gradient(width, to, slope, row);
    }
  });
}

void clear_node_rows(Stream& stream, const Tensor& x, const RowSet& rows) {
  const std::int64_t width = x.columns();
  map_rows(stream, {rows.size(), width}, {x}, [&]<class T>() { return ClearRows<T>{x, width, rows}; });
}

void round_node_rows(Stream& stream, const Tensor& y, const Tensor& x, const RowSet& rows) {
  require(x.shape() == y.shape() && x.dtype() == DType::f32 && (y.dtype() == DType::bf16 || y.dtype() == DType::f16),
          "round_node_rows: from ", x.shape(), " of ", x.dtype(), " to ", y.shape(), " of ", y.dtype());
  const std::int64_t width = x.columns();
  const float* from = x.data<const float>();
  const bool gpu = on_gpu(y, [&]<class Half>() {
    if constexpr (sizeof(Half) < sizeof(float))
      gpu::launch(stream, gpu::warp_per_row(rows.size()), round_node_rows_kernel<Half>, y.data<Half>(), from, width,
                  rows);
  });
  if (gpu) return;
  const auto round = [&](auto* to, const auto& rounded) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const std::int64_t first = rows[i] * width;
      for (std::int64_t c = first; c < first + width; ++c) to[c].bits = rounded(from[c]);
    }
  };
  if (y.dtype() == DType::f16)
    round(y.data<f16>(), to_f16);
  else
    round(y.data<bf16>(), to_bf16);
}

void sum_node_rows(Stream& stream, const Tensor& y, const Tensor& x, std::int64_t column,
                   std::span<const std::int64_t> ptr, std::span<const std::int64_t> place) {
  require(
      y.rows() == std::ssize(ptr) - 1 && column >= 0 && column + y.columns() <= x.columns() && x.dtype() == y.dtype(),
      "sum_node_rows: columns from ", column, " of ", x.shape(), " as ", y.shape(), ", ", ptr.size(), " offsets");
  const std::int64_t width = y.columns(), stride = x.columns();
  on_gpu_in_floats(x, [&]<class T>() {
    gpu::launch(stream, gpu::grid_for(y.size()), sum_node_rows_kernel<T>, y.size(), y.data<T>(), width,
                x.data<const T>() + column, stride, ptr.data(), place.empty() ? nullptr : place.data());
  });
  on_cpu(x, [&]<class T>() {
    const T* from = x.data<const T>() + column;
    const std::int64_t count = y.rows();
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < count; ++n) {
      T* sum = y.data<T>() + n * width;
      std::fill_n(sum, width, T{0});
      for (std::int64_t u = ptr[n]; u < ptr[n + 1]; ++u) {
        if (u + kPrefetch < std::ssize(place)) prefetch(from + place[u + kPrefetch] * stride, width);
        const T* row = from + (place.empty() ? u : place[u]) * stride;
        for (std::int64_t c = 0; c < width; ++c) sum[c] += row[c];
      }
    }
  });
}

}  // namespace lockstep::ops

#endif
