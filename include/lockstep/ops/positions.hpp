#pragma once
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Copies consecutive positions of each sequence: y_bi = x_b,first+i.
///
/// shapes   x (B, T, C); y (B, n, C), first + n <= T
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error naming the shapes if they do not fit
void take_positions(Stream&, const Tensor& y, const Tensor& x, std::int64_t first);
/// The gradient: dx_b,first+i (+)= dy_bi. When dx is stored, its other positions become 0.
void take_positions_backward(Stream&, Target dx, const Tensor& dy, std::int64_t first);

/// Fills sequences with one row: x_bt = row for all t where starts_b is not 0. On a GPU starts must be in device or
/// pinned host memory.
///
/// shapes   x (B, T, C); row (C); starts (B)
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal; starts i32
/// errors   Error naming the shapes if they do not fit
void fill_sequences(Stream&, const Tensor& x, const Tensor& row, const Tensor& starts);

}  // namespace lockstep::ops
