#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Cosines and sines of the angles of a rotary position embedding: position t, pair j: t theta^(-2j / d), j < d/2.
///
/// shapes   cos, sin (T, d/2)
/// dtypes   f32 | f64
void rope_table(const Tensor& cos, const Tensor& sin, double theta);

enum class Rotation { forward, inverse };

/// Rotate queries and keys by their position, in place. Each head's vector is split into halves (a, b):
///
///   (a_j, b_j) <- (a_j cos_tj - b_j sin_tj,  b_j cos_tj + a_j sin_tj)
///
/// and back for Rotation::inverse, which is also the gradient's way.
///
/// shapes   qkv (B, T, W), T the table's; the first `heads` times d of the W columns are rotated: of [q | k | v] with H
///          heads each, 2H
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16 with tables of f32
/// errors   Error naming the shapes if they do not fit
/// source   Su et al. 2021, arXiv:2104.09864, eq. 34, in the half-split form of GPT-NeoX
void rope(Stream&, const Tensor& qkv, const Tensor& cos, const Tensor& sin, std::int64_t heads, Rotation rotation);

}  // namespace lockstep::ops
