#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// How well features tell the item that came next from one that was drawn, by scores against the rows of a table.
///
///   loss = sum over m with pos_m != 0 of softplus(-f_m . E_pos_m) + softplus(f_m . E_neg_m)
///
/// slopes are the derivatives by the two scores, kept for the backward: those of the next items, then of the drawn ones.
///
/// shapes   loss (); slopes (2, M); f (M, C); table E (R, C); pos, neg (M)
/// dtypes   f, table f32 | f64, on a GPU also bf16 | f16; loss, slopes, dtable real, f32 for the halves; the sum is added
///          up in f64
/// errors   Error naming the shapes if they do not fit, or an item that is not in 0..R-1
/// source   Kang, McAuley 2018, arXiv:1808.09781, eq. 7
void sampled_cross_entropy_forward(Stream&, const Tensor& loss, const Tensor& slopes, const Tensor& f,
                                   const Tensor& table, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg);
/// dtable (R, C) is always added to, in an order of its own on each kind of device. Either may be empty.
void sampled_cross_entropy_backward(Stream&, Target df, const Tensor& dtable, const Tensor& dloss, const Tensor& slopes,
                                    const Tensor& f, const Tensor& table, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg);

}  // namespace lockstep::ops
