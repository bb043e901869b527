#pragma once
#include <span>

#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/regression_loss.hpp"

namespace lockstep {

using ops::Regression;

/// scale times the sum over all elements of a regression loss of y against target, see ops/regression_loss.hpp.
///
/// shapes   y, target equal -> ()
Var regression_loss(Tape& tape, Var y, const Tensor& target, Regression kind, double scale = 1,
                    const Tensor& weights = {});
/// scale times the sum of squared vertical differences of the denormalised prediction, see ops/regression_loss.hpp.
/// Result shape ().
Var smoothness_loss(Tape& tape, Var y, std::span<const double> mean, std::span<const double> std, int order,
                    double scale = 1);
/// The weighted sum over rows of the cross entropy of a softmax with smoothed labels, see ops/cross_entropy.hpp. Labels
/// and weights lie in host memory, from tape.host_arena() if the tape is on a GPU.
///
/// shapes   logits (N, V), labels (N), weights (N) or empty: all 1 -> ()
/// dtypes   labels i32, weights f64
Var cross_entropy(Tape& tape, Var logits, const Tensor& labels, double smoothing = 0, const Tensor& weights = {});
/// The sum over tokens m with pos_m != 0 of the binary cross entropies of the next item, times beta, and of K negative
/// items, scored against the rows of a table, see ops/sampled_cross_entropy.hpp. `pos` and `neg` must outlive the tape.
///
/// shapes   f (M, C), table E (R, C), pos (M), neg (M K) -> ()
/// errors   Error if the shapes do not match
Var sampled_cross_entropy(Tape& tape, Var f, const Param& table, std::span<const std::int32_t> pos,
                          std::span<const std::int32_t> neg, double beta = 1);
/// The sum over tokens m with pos_m != 0 of the cross-entropy of the next item among all rows 1..R-1 of the table, see
/// ops/item_softmax.hpp. `pos` must outlive the tape. The gradient of the table is dense. `parts` divides the sums over
/// items on the CPU, see ops::SoftmaxCandidates.
///
/// shapes   f (M, C), table E (R, C), pos (M) -> ()
/// errors   Error if the shapes do not match, or if the table is row-sparse
Var item_softmax(Tape& tape, Var f, const Param& table, std::span<const std::int32_t> pos, std::int64_t parts = 1);
/// Like item_softmax(), but among the next item and K drawn candidates, which all tokens share. bias is added to the
/// candidates' scores. `pos`, `ids` and `bias` must outlive the tape.
///
/// shapes   f (M, C), table E (R, C), pos (M), ids (K), bias (K) -> ()
/// errors   Error if the shapes do not match
Var sampled_softmax(Tape& tape, Var f, const Param& table, std::span<const std::int32_t> pos,
                    std::span<const std::int32_t> ids, const Tensor& bias);
/// a + b. shapes  a, b equal
Var add(Tape& tape, Var a, Var b);

}  // namespace lockstep
