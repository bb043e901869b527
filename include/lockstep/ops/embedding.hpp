#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Look up rows of a table by number and scale them.
///
///   y_m = scale table[ids_m]
///
/// shapes   table (R, C); ids (M); y (M, C)
/// dtypes   f32 | f64, equal; on a GPU also bf16 | f16, with dtable in f32
/// errors   Error if the shapes do not fit or an id is not in 0..R-1
void embedding_forward(Stream&, const Tensor& y, const Tensor& table, std::span<const std::int32_t> ids, double scale);

/// The gradient of the table: dtable[ids_m] += scale dy_m for m ascending, always added. Rows with id `padding` are
/// skipped (negative: none).
///
/// errors   as embedding_forward
void embedding_backward(Stream&, const Tensor& dtable, const Tensor& dy, std::span<const std::int32_t> ids,
                        double scale, std::int64_t padding);

}  // namespace lockstep::ops
