#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Fills the table of a rotary position embedding: cosine and sine of the angle t theta^(-2j / d) for position t and
/// pair j < d/2.
///
/// shapes   cos, sin (T, d/2)
/// dtypes   f32 | f64
/// errors   Error naming the shapes if they differ
void rope_table(const Tensor& cos, const Tensor& sin, double theta);

enum class Rotation { forward, inverse };

/// Rotates queries and keys by their position, in place. Each head's vector is split into halves (a, b):
///
///   (a_j, b_j) <- (a_j cos_tj - b_j sin_tj,  b_j cos_tj + a_j sin_tj)
///
/// Rotation::inverse rotates back; it is also the backward.
///
/// shapes   qkv (B, T, W), T that of the table. The first heads d of the W columns are rotated: for [q | k | v] with H
///          heads each, heads is 2H
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16 with f32 tables
/// errors   Error naming the shapes if they do not fit
/// source   Su et al. 2021, arXiv:2104.09864, eq. 34, in the half-split form of GPT-NeoX
void rope(Stream&, const Tensor& qkv, const Tensor& cos, const Tensor& sin, std::int64_t heads, Rotation rotation);

}  // namespace lockstep::ops
