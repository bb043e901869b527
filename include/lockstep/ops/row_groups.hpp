#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Repeat each row n times: y_(i n + k) = x_i. y is stored, or added when y.accumulate. The gradient of sum_rows.
///
/// shapes   x (N, C); y of N n C elements
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error naming the shapes if they do not fit
void copy_rows(Stream&, Target y, const Tensor& x, std::int64_t n);
/// Sum groups of n rows: y_i = sum over k of x_(i n + k). y is stored, or added when y.accumulate. The gradient of
/// copy_rows.
///
/// shapes   y (N, C); x of N n C elements
/// dtypes   as copy_rows
/// errors   Error naming the shapes if they do not fit
void sum_rows(Stream&, Target y, const Tensor& x, std::int64_t n);
/// Mask rows: y_i = x_i where ids_i is not 0, else 0. y is stored, or added when y.accumulate. It is its own gradient.
///
/// shapes   x, y (N, C); ids (N)
/// dtypes   as copy_rows
/// errors   Error naming the shapes if they do not fit
void mask_rows(Stream&, Target y, const Tensor& x, std::span<const std::int32_t> ids);

}  // namespace lockstep::ops
