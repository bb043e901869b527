#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Multiplies by a factor: y_i = factor x_i. y is stored, or added when y.accumulate. y may be x.
///
/// shapes   equal
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error naming the shapes if they differ
void scale(Stream&, Target y, const Tensor& x, double factor);

/// Multiplies by a factor in device memory: y_i = factor times x_i. `times` is one number in the same memory as x. y is
/// stored, or added when y.accumulate. y may be x.
///
/// shapes   y, x equal; times ()
/// dtypes   f32 | f64, equal; on a GPU y may also be bf16 | f16 with x and times of f32
void scale_by(Stream&, Target y, const Tensor& x, const Tensor& times, double factor);

/// Adds two or three arrays: y_i = (a_i + b_i) + c_i. y may be any of them; c may be empty.
///
/// shapes   equal
/// dtypes   as scale
/// errors   Error naming the shapes if they differ
void add(Stream&, const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& c = {});

}  // namespace lockstep::ops
