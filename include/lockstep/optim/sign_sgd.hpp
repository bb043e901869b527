#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Sign descent of the rows of a table that a batch has used, from one gradient row per sample:
///
///   g_r = sum over samples i with ids_i = r of gradients_i   (in the order of i)
///   row_r <- row_r (1 - lr weight_decay) - lr sign(g_r),   sign(0) = 0
///
/// Rows that no sample used stay as they are, decay included. The sign does not care how gradients are scaled.
///
/// Lists of samples are made in `scratch`, an arena of the table's device, and must last until its stream has been waited
/// for.
///
/// shapes   table (N, C); ids (B); gradients (B, C)
/// dtypes   table, gradients f32 | f64, equal
/// errors   Error if the shapes do not fit or an id is not in 0..N-1
/// source   HRM's public code, arXiv:2506.21734
void sign_sgd_rows(Arena& scratch, const Tensor& table, std::span<const std::int32_t> ids, const Tensor& gradients,
                   double lr, double weight_decay);

}  // namespace lockstep
