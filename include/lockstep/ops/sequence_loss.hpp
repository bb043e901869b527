#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "lockstep/base/named.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The loss of a position. With p_j proportional to s(x_j), the cross-entropy of label y is -log p_y.
///
///   softmax    s(x) = exp(x)
///   stablemax  s(x) = x + 1 for x >= 0, 1 / (1 - x) for x < 0; needs no exponential
///
/// source   stablemax: Prieto et al. 2025, arXiv:2501.04697, eq. 4
enum class TokenLoss { stablemax, softmax };
constexpr auto names_of(TokenLoss) { return std::array{"stablemax", "softmax"}; }

/// The loss and the hits of one sequence.
struct SequenceScore {
  double loss = 0;            ///< mean cross-entropy over the labelled positions; 0 when there are none
  std::int64_t labelled = 0;  ///< positions with a label
  std::int64_t correct = 0;   ///< labelled positions whose largest logit (lowest index on a tie) is the label
  /// Whether all labelled positions are correct. True for a sequence without labels.
  constexpr bool exact() const { return correct == labelled; }
};

/// Cross-entropy averaged over each sequence's labelled positions, its gradient, and the hits, in one pass in f64.
///
/// dlogits is the gradient of the sum of the sequences' losses. On a GPU labels and scores must be in device or pinned
/// host memory, and the host may read the scores once the stream has finished this call.
///
/// shapes   logits, dlogits (B, S, V); dlogits may be empty; labels (B, S); scores (B)
/// range    labels 0..V-1; a negative label means not labelled
/// dtypes   logits, dlogits f32 | f64, equal; on a GPU also bf16 | f16 logits with f32 dlogits, because a scale is
///          applied later; labels i32
/// errors   Error if the shapes do not fit or a label is V or more. Labels in device memory are not checked
void sequence_loss(Stream&, const Tensor& dlogits, std::span<SequenceScore> scores, const Tensor& logits,
                   const Tensor& labels, TokenLoss loss);

/// The logistic function 1 / (1 + exp(-z)).
constexpr double logistic(double z) {
  const double e = std::exp(z < 0 ? z : -z);
  return z >= 0 ? 1 / (1 + e) : e / (1 + e);
}
/// Binary cross-entropy of a logit z and target y: -y log sigmoid(z) - (1 - y) log(1 - sigmoid(z)) = max(z, 0) - z y +
/// log1p(exp(-|z|)), and its derivative with respect to z.
struct BinaryLoss {
  double loss, derivative;
};
constexpr BinaryLoss binary_cross_entropy(double z, double target) {
  return {(z > 0 ? z : 0) - z * target + std::log1p(std::exp(z < 0 ? z : -z)), logistic(z) - target};
}

}  // namespace lockstep::ops
