#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// With p_j proportional to s(x_j), the cross-entropy of label y is -log p_y.
///
///   softmax    s(x) = exp(x)
///   stablemax  s(x) = x + 1 for x >= 0, 1 / (1 - x) for x < 0; no exponential is involved
///
/// source  stablemax: Prieto et al. 2025, arXiv:2501.04697, eq. 4
enum class TokenLoss { stablemax, softmax };

const char* name(TokenLoss loss);
/// "stablemax", "softmax". errors  Error (usage) that lists the names
TokenLoss parse_token_loss(std::string_view name);

/// What a sequence of predictions amounts to.
struct SequenceScore {
  double loss = 0;            ///< mean cross-entropy over the labelled positions; 0 when there are none
  std::int64_t labelled = 0;  ///< positions with a label
  std::int64_t correct = 0;   ///< labelled positions whose largest logit (the lowest index wins a tie) is the label
  /// All labelled positions correct, which a sequence without labels is, too.
  bool exact() const { return correct == labelled; }
};

/// Cross-entropies, averaged over each sequence's labelled positions, their gradient and the hits, in one pass in f64.
///
/// dlogits is the gradient of the sum of the sequences' losses. With a GPU labels and scores lie there, or in pinned host
/// memory; then the host sees the scores when the stream has been waited for.
///
/// shapes   logits, dlogits (B, S, V); dlogits may be empty; labels (B, S); scores (B)
/// range    labels 0..V-1, or negative: not labelled
/// dtypes   logits, dlogits f32 | f64, equal; on a GPU also bf16 | f16 logits with dlogits in f32: a scale is still to come;
///          labels i32
/// errors   Error if the shapes do not fit, or a label is V or more; labels on a GPU are the caller's to check
void sequence_loss(Stream&, const Tensor& dlogits, std::span<SequenceScore> scores, const Tensor& logits,
                   const Tensor& labels, TokenLoss loss);

/// -y log sigmoid(z) - (1 - y) log(1 - sigmoid(z)) = max(z, 0) - z y + log1p(exp(-|z|)), and its derivative by z.
struct BinaryLoss {
  double loss, derivative;
};
BinaryLoss binary_cross_entropy(double logit, double target);
/// 1 / (1 + exp(-z)).
double logistic(double z);

}  // namespace lockstep::ops
