#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Binary cross-entropy of the next item (positive) and K sampled items (negatives) for each feature row. A score is
/// the product of a feature row and a row of the table.
///
///   loss = sum over m with pos_m != 0 of beta softplus(-f_m . E_pos_m) + sum over k of softplus(f_m . E_neg_mk)
///
/// slopes receives the derivatives with respect to the scores, for the backward: row 0 for the next items, row 1 + k
/// for negative k.
/// With beta 1 and one negative it is the loss of SASRec. With beta = 1 - t (1 - K / (I - 1)) it is gBCE with
/// calibration t for a catalogue of I items.
///
/// shapes   loss (); slopes (1 + K, M); f (M, C); table E (R, C); pos (M); neg (M K)
/// dtypes   f, table f32 | f64, on a GPU also bf16 | f16; loss, slopes, dtable the same, f32 for halves; the sum is
///          computed in f64
/// errors   Error naming the shapes if they do not fit, or an item that is not in 0..R-1
/// source   Kang, McAuley 2018, arXiv:1808.09781, eq. 7; gBCE: Petrov, Macdonald 2023, arXiv:2308.07192, eq. 10
/// differs  from gBCE by the factor 1 + K: the sum over the scores instead of their mean
void sampled_cross_entropy_forward(Stream&, const Tensor& loss, const Tensor& slopes, const Tensor& f,
                                   const Tensor& table, std::span<const std::int32_t> pos,
                                   std::span<const std::int32_t> neg, double beta = 1);
/// Rows of dtable for the gradients of pos and neg.
struct ItemPlaces {
  std::span<const std::int32_t> pos = {}, neg = {};
};
/// The gradients of f and the table. dtable (R, C) is always added to, in a fixed order that differs between CPU and
/// GPU. Either may be empty. On the CPU, with `places`, the gradients of items go to these rows of dtable instead of
/// their own.
void sampled_cross_entropy_backward(Stream&, Target df, const Tensor& dtable, const Tensor& dloss, const Tensor& slopes,
                                    const Tensor& f, const Tensor& table, std::span<const std::int32_t> pos,
                                    std::span<const std::int32_t> neg, const ItemPlaces& places = {});

}  // namespace lockstep::ops
