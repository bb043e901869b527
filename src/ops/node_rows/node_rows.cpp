#include "lockstep/ops/node_rows.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/f16.hpp"
#include "node_rows_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {
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
    cuda::gather_node_rows<T>(stream, y.data<T>() + column, stride, {x, width, rows, scale});
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
    cuda::scatter_node_rows<T>(stream, dx, dy.data<const T>() + column, stride, {x, width, rows, scale});
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
  on_gpu_in_floats(x, [&]<class T>() { cuda::clear_node_rows<T>(stream, x, x.columns(), rows); });
  on_cpu(x, [&]<class T>() {
    const std::int64_t width = x.columns();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < rows.size(); ++i)
      std::memset(x.data<T>() + rows[i] * width, 0, static_cast<std::size_t>(width) * sizeof(T));
  });
}

void round_node_rows(Stream& stream, const Tensor& y, const Tensor& x, const RowSet& rows) {
  require(x.shape() == y.shape() && x.dtype() == DType::f32 && (y.dtype() == DType::bf16 || y.dtype() == DType::f16),
          "round_node_rows: from ", x.shape(), " of ", x.dtype(), " to ", y.shape(), " of ", y.dtype());
  const std::int64_t width = x.columns();
  const float* from = x.data<const float>();
  const auto round = [&](auto* to, const auto& rounded) {
    if (on_gpu(x.device(), [&] { cuda::round_node_rows(stream, to, from, width, rows); })) return;
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
  on_gpu_in_floats(
      x, [&]<class T>() { cuda::sum_node_rows<T>(stream, y, width, x.data<const T>() + column, stride, ptr, place); });
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
