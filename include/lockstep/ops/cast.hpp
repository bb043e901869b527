#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Converts x to another dtype: y_i = x_i, rounded to nearest, ties to even.
///
/// shapes   y, x of equal size
/// dtypes   each of f32 | bf16 | f16, or f64 to f64, bf16 or f16; bf16 and f16 on a GPU only
/// errors   Error if the sizes differ or the conversion is not supported
void cast(Stream&, const Tensor& y, const Tensor& x);

}  // namespace lockstep::ops
