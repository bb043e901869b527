#pragma once
#include <cstdint>

#include "library_types.h"

namespace cuda_host {

/// A matrix in memory: element (i, j) is at i * row_stride + j * column_stride.
struct MatrixView {
  void* data;
  cudaDataType_t type;
  std::int64_t row_stride, column_stride;
};

/// The precision of operands: unchanged, or TF32 (10 bits after the binary point, rounded to nearest).
enum class Digits { all, tf32 };

/// d (m, n) = alpha a (m, k) b (k, n) + beta c + bias, with bias (m) of d's type or null. c is not read when beta is 0.
/// Computed in float, or in double if a is double. Sums run over k in ascending order.
void matmul(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const MatrixView& a, const MatrixView& b,
            double beta, const MatrixView& c, const MatrixView& d, const void* bias, Digits digits = Digits::all);

std::int64_t size_of(cudaDataType_t type);

}  // namespace cuda_host
