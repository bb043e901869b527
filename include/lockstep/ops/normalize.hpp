#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Rows that a caller keeps in a layout of its own: element (m, c) lies at data + m row_stride + c column_stride (in
/// elements). A Fortran array x(columns, rows) is {x, dtype, rows, columns, ld, 1}; variables first, x(rows, columns),
/// is {x, dtype, rows, columns, 1, ld}.
struct StridedRows {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  StridedRows() = default;
  StridedRows(const Tensor& t)  // NOLINT: implicit on purpose
      : data(t.raw()), dtype(t.dtype()), rows(t.rows()), columns(t.columns()), row_stride(t.columns()) {}
  template <class T>
  StridedRows(T* p, std::int64_t n_rows, std::int64_t n_columns, std::int64_t stride_of_rows,
              std::int64_t stride_of_columns = 1)
      : data(const_cast<std::remove_const_t<T>*>(p)),
        dtype(dtype_of<std::remove_const_t<T>>::value),
        rows(n_rows),
        columns(n_columns),
        row_stride(stride_of_rows),
        column_stride(stride_of_columns) {}
};

/// From physical to normalised units, column by column, and back.
///
///   normalize     y_mc = (x_mc - mean_c) / std_c
///   denormalize   y_mc = x_mc std_c + mean_c
///   scale_rows    y_mc = x_mc scale_c;          added to y when accumulate
///
/// shapes   x, y (M, C), where the stream computes; mean, std, scale (C), in the host's memory
/// dtypes   x, y f32 | f64, each its own; computed in f64 unless both are f32, where mean and std are rounded to f32 first
/// errors   Error naming the shapes if they do not fit
void normalize(Stream&, const StridedRows& y, const StridedRows& x, std::span<const double> mean,
               std::span<const double> std);
void denormalize(Stream&, const StridedRows& y, const StridedRows& x, std::span<const double> mean,
                 std::span<const double> std);
void scale_rows(Stream&, const StridedRows& y, const StridedRows& x, std::span<const double> scale,
                bool accumulate = false);

}  // namespace lockstep::ops
