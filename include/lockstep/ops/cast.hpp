#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// y_i = x_i in another dtype, rounded to nearest, ties to even.
///
/// shapes   y, x of equal size
/// dtypes   each f32 | bf16 | f16, or both f64, or f64 to a half; bf16 and f16 on a GPU only
void cast(Stream&, const Tensor& y, const Tensor& x);

}  // namespace lockstep::ops
