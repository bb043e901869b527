#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Sign descent on the rows of a table that a batch uses, from one gradient row per sample:
///
///   g_r = sum over samples i with ids_i = r of gradients_i   (in the order of i)
///   row_r <- row_r (1 - lr weight_decay) - lr sign(g_r),   sign(0) = 0
///
/// Rows that no sample uses do not change, and weight decay skips them too. The scale of the gradients has no effect.
///
/// `scratch` is an arena of the table's device. Its memory must stay valid until the device's stream is synchronised.
///
/// shapes   table (N, C); ids (B); gradients (B, C)
/// dtypes   table, gradients f32 | f64, equal
/// errors   Error if the shapes do not fit or an id is not in 0..N-1
/// source   public code of HRM, arXiv:2506.21734
void sign_sgd_rows(Arena& scratch, const Tensor& table, std::span<const std::int32_t> ids, const Tensor& gradients,
                   double lr, double weight_decay);

}  // namespace lockstep
