#pragma once
#include <span>

#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/regression_loss.hpp"

namespace lockstep {

using ops::Regression;

/// scale times the sum over all elements of a regression loss of y against target, see ops/regression_loss.hpp. A
/// scalar, shape ().
Var regression_loss(Tape& tape, Var y, const Tensor& target, Regression kind, double scale = 1);
/// scale times the sum of squared vertical differences of the denormalised prediction. A
/// scalar, shape ().
Var smoothness_loss(Tape& tape, Var y, std::span<const double> mean, std::span<const double> std, int order,
                    double scale = 1);
/// The sum over the rows of the cross entropy of a softmax with smoothed labels, see ops/cross_entropy.hpp; labels (N)
/// i32, in the host's memory (of tape.host_arena(), so that a GPU can read them). A scalar, shape ().
Var cross_entropy(Tape& tape, Var logits, const Tensor& labels, double smoothing = 0);
/// The sum over tokens m with pos_m != 0 of softplus(-f_m . E_pos_m) + softplus(f_m . E_neg_m): the cross entropies of
/// the item that came next and of one that did not, from scores against the rows of a table. A scalar, shape (). The
/// numbers outlive the tape.
/// shapes  f (M, C); table E (R, C); pos, neg (M)
Var sampled_cross_entropy(Tape& tape, Var f, const Param& table, std::span<const std::int32_t> pos,
                          std::span<const std::int32_t> neg);
/// a + b, of equal shapes.
Var add(Tape& tape, Var a, Var b);

}  // namespace lockstep
