#pragma once
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Some positions of each sequence: y_bi = x_b,first+i.
///
/// shapes   x (B, T, C); y (B, n, C), first + n <= T
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error naming the shapes if they do not fit
void take_positions(Stream&, const Tensor& y, const Tensor& x, std::int64_t first);
/// dx_b,first+i (+)= dy_bi; the other positions get zero when dx is stored.
void take_positions_backward(Stream&, Target dx, const Tensor& dy, std::int64_t first);

/// One row at every position of some sequences: x_bt = row where starts_b is not 0. With a GPU starts lies there, or in
/// pinned host memory.
///
/// shapes   x (B, T, C); row (C); starts (B)
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal; starts i32
/// errors   Error naming the shapes if they do not fit
void fill_sequences(Stream&, const Tensor& x, const Tensor& row, const Tensor& starts);

}  // namespace lockstep::ops
