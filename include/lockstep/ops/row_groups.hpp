#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Each row n times: y_(i n + k) = x_i; stored, or added when y.accumulate. The gradient of sum_rows.
///
/// shapes   x (N, C); y of N n C elements
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error naming the shapes if they do not fit
void copy_rows(Stream&, Target y, const Tensor& x, std::int64_t n);
/// The sums of n rows each: y_i = sum over k of x_(i n + k); stored, or added. The gradient of copy_rows.
/// shapes   y (N, C); x of N n C elements
void sum_rows(Stream&, Target y, const Tensor& x, std::int64_t n);
/// y_i = x_i where ids_i is not 0, else 0; stored, or added. Its own gradient.
/// shapes   x, y (N, C); ids (N)
void mask_rows(Stream&, Target y, const Tensor& x, std::span<const std::int32_t> ids);

}  // namespace lockstep::ops
