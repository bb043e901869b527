#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Binary cross-entropy of the next item (positive) and one sampled item (negative) for each feature row. A score is
/// the product of a feature row and a row of the table.
///
///   loss = sum over m with pos_m != 0 of softplus(-f_m . E_pos_m) + softplus(f_m . E_neg_m)
///
/// slopes receives the derivatives by both scores for the backward: row 0 for the next items, row 1 for the sampled
/// ones.
///
/// shapes   loss (); slopes (2, M); f (M, C); table E (R, C); pos, neg (M)
/// dtypes   f, table f32 | f64, on a GPU also bf16 | f16; loss, slopes, dtable the same, f32 for halves; the sum is
///          computed in f64
/// errors   Error naming the shapes if they do not fit, or an item that is not in 0..R-1
/// source   Kang, McAuley 2018, arXiv:1808.09781, eq. 7
void sampled_cross_entropy_forward(Stream&, const Tensor& loss, const Tensor& slopes, const Tensor& f,
                                   const Tensor& table, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg);
/// The gradients of f and the table. dtable (R, C) is always added to, in a fixed order that differs between CPU and
/// GPU. Either may be empty.
void sampled_cross_entropy_backward(Stream&, Target df, const Tensor& dtable, const Tensor& dloss, const Tensor& slopes,
                                    const Tensor& f, const Tensor& table, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg);

}  // namespace lockstep::ops
