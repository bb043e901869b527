#include "lockstep/ops/sequence_loss.hpp"

#include <algorithm>
#include <cmath>

#include "ops/common/on_gpu.hpp"
#include "sequence_loss_kernels.hpp"

namespace lockstep::ops {

const char* name(TokenLoss loss) { return loss == TokenLoss::stablemax ? "stablemax" : "softmax"; }

TokenLoss parse_token_loss(std::string_view text) {
  if (text == "stablemax") return TokenLoss::stablemax;
  require_usage(text == "softmax", "loss '", text, "': unknown; choose stablemax or softmax");
  return TokenLoss::softmax;
}

namespace {

/// The cross-entropy of one position. Stores its gradient, times `share`, in dx unless dx is null.
template <class T>
double stablemax(std::int64_t n, const T* x, std::int64_t label, double share, T* dx) {
  const auto s = [](double v) { return v >= 0 ? v + 1 : 1 / (1 - v); };
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum += s(static_cast<double>(x[j]));
  const double hit = s(static_cast<double>(x[label]));
  for (std::int64_t j = 0; dx && j < n; ++j) {
    const double v = static_cast<double>(x[j]), slope = v >= 0 ? 1 : 1 / ((1 - v) * (1 - v));
    dx[j] = static_cast<T>(share * slope * (1 / sum - (j == label ? 1 / hit : 0)));
  }
  return std::log(sum) - std::log(hit);
}

template <class T>
double softmax(std::int64_t n, const T* x, std::int64_t label, double share, T* dx) {
  const auto most = static_cast<double>(*std::max_element(x, x + n));
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<double>(x[j]) - most);
  for (std::int64_t j = 0; dx && j < n; ++j)
    dx[j] = static_cast<T>(share * (std::exp(static_cast<double>(x[j]) - most) / sum - (j == label ? 1 : 0)));
  return std::log(sum) - (static_cast<double>(x[label]) - most);
}

}  // namespace

void sequence_loss(Stream& stream, const Tensor& dlogits, std::span<SequenceScore> scores, const Tensor& logits,
                   const Tensor& labels, TokenLoss loss) {
  require(logits.shape().rank() == 3 && std::ssize(scores) == logits.shape()[0] &&
              labels.shape() == Shape{logits.shape()[0], logits.shape()[1]} &&
              (!dlogits || dlogits.shape() == logits.shape()),
          "sequence_loss: logits are ", logits.shape(), ", dlogits ", dlogits.shape(), ", labels ", labels.shape(),
          ", scores ", scores.size(), "; these do not fit together");
  const std::int64_t positions = logits.shape()[1], n = logits.columns();
  for (std::int64_t at = 0; !labels.device().is_cuda() && at < labels.size(); ++at)
    if (const std::int32_t label = labels.data<std::int32_t>()[at]; label >= n)
      throw Error(Fault::internal, join("sequence_loss: label ", label, " of sequence ", at / positions, ", position ",
                                        at % positions, ": there are ", n, " classes"));
  on_gpu(logits, [&]<class T>() {
    cuda::sequence_loss<T>(stream, logits.shape()[0], positions, n, dlogits, scores.data(), logits, labels, loss);
  });
  on_cpu(logits, [&]<class T>() {
    for (std::size_t b = 0; b < scores.size(); ++b) {
      const std::span<const std::int32_t> own =
          labels.slice(static_cast<std::int64_t>(b), 1).span<const std::int32_t>();
      SequenceScore score;
      score.labelled = std::count_if(own.begin(), own.end(), [](std::int32_t label) { return label >= 0; });
      const double share = 1 / static_cast<double>(std::max<std::int64_t>(1, score.labelled));
      for (std::int64_t p = 0; p < positions; ++p) {
        const std::int64_t at = (static_cast<std::int64_t>(b) * positions + p) * n, label = own[p];
        const T* x = logits.data<T>() + at;
        T* dx = dlogits ? dlogits.data<T>() + at : nullptr;
        if (label < 0) {
          if (dx) std::fill_n(dx, n, T{0});
          continue;
        }
        score.loss += share * (loss == TokenLoss::stablemax ? stablemax(n, x, label, share, dx)
                                                            : softmax(n, x, label, share, dx));
        score.correct += std::max_element(x, x + n) - x == label;
      }
      scores[b] = score;
    }
  });
}

}  // namespace lockstep::ops
