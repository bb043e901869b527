#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Scores of ranking candidates: the products of each feature row with its own list of table rows.
///
///   score_bk = f_b . E_ids_bk, summed in f64
///
/// shapes   scores (B, K); f (B, C); table E (R, C); ids (B K)
/// dtypes   f, table f32 | f64, on a GPU also bf16 | f16; scores the same, f32 for halves
/// errors   Error naming the shapes if they do not fit, or an id that is not in 0..R-1
void row_scores(Stream&, const Tensor& scores, const Tensor& f, const Tensor& table, std::span<const std::int32_t> ids);

}  // namespace lockstep::ops
