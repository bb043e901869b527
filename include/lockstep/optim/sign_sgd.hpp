#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Sign descent on the rows of a table that a batch uses, from one gradient row per sample:
///
///   g_r = sum over samples i with ids_i = r of gradients_i   (in the order of i)
///   row_r <- row_r (1 - lr weight_decay) - lr sign(g_r),   sign(0) = 0
///
/// Rows that no sample uses do not change, and weight decay skips them too. The scale of the gradients has no effect. A
/// shadow, if there is one, receives a copy of the changed rows.
///
/// On a GPU, GpuUpdate makes the same update at the end of a step, without the host.
///
/// shapes   table, shadow (N, C); ids (B); gradients (B, C)
/// dtypes   table, shadow, gradients f32 | f64, equal; ids i32
/// errors   Error if the shapes do not fit; on the CPU if an id is not in 0..N-1
/// source   public code of HRM, arXiv:2506.21734
void sign_sgd_rows(Arena& scratch, const Tensor& table, const Tensor& ids, const Tensor& gradients, double lr,
                   double weight_decay, const Tensor& shadow = {});

}  // namespace lockstep
