#include "lockstep/ops/sequence_loss.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

constexpr int kThreads = 128;

/// The number that a logit stores, on either device.
template <class T>
constexpr double wide(T x) {
  if constexpr (std::is_same_v<T, bf16>)
    return static_cast<double>(from_bf16(x.bits));
  else if constexpr (std::is_same_v<T, f16>)
    return static_cast<double>(__half2float(__ushort_as_half(x.bits)));
  else
    return static_cast<double>(x);
}

/// For the classes of a position: s(x), its sum over the classes, and the gradient of the cross-entropy.
template <class T>
struct Stablemax {
  constexpr static double s(double v) { return v >= 0 ? v + 1 : 1 / (1 - v); }
  constexpr Stablemax(const T* x, std::int64_t n, std::int64_t label) : hit(s(wide(x[label]))) {
    for (std::int64_t j = 0; j < n; ++j) sum += s(wide(x[j]));
  }
  constexpr double loss() const { return std::log(sum) - std::log(hit); }
  constexpr double slope(double v, bool is_label, double share) const {
    const double change = v >= 0 ? 1 : 1 / ((1 - v) * (1 - v));
    return share * change * (1 / sum - (is_label ? 1 / hit : 0));
  }
  double sum = 0, hit;
};

template <class T>
struct Softmax {
  constexpr Softmax(const T* x, std::int64_t n, std::int64_t label) : most(wide(x[0])) {
    for (std::int64_t j = 1; j < n; ++j) most = wide(x[j]) > most ? wide(x[j]) : most;
    for (std::int64_t j = 0; j < n; ++j) sum += std::exp(wide(x[j]) - most);
    hit = wide(x[label]) - most;
  }
  constexpr double loss() const { return std::log(sum) - hit; }
  constexpr double slope(double v, bool is_label, double share) const {
    return share * (std::exp(v - most) / sum - (is_label ? 1 : 0));
  }
  double most, sum = 0, hit = 0;
};

/// Adds the cross-entropy of a position, times `share`, to the sequence's loss. Stores its gradient in dx unless null.
template <template <class> class Loss, class T>
constexpr void add_position(SequenceScore& score, std::int64_t n, const T* x, std::int64_t label, double share,
                            real_t<T>* dx) {
  if (label < 0) {
    for (std::int64_t j = 0; dx && j < n; ++j) dx[j] = 0;
    return;
  }
  const Loss<T> loss(x, n, label);
  score.loss += share * loss.loss();
  for (std::int64_t j = 0; dx && j < n; ++j) dx[j] = static_cast<real_t<T>>(loss.slope(wide(x[j]), j == label, share));
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < n; ++j) best = wide(x[j]) > wide(x[best]) ? j : best;
  score.correct += best == label;
}
constexpr double share_of(std::int64_t labelled) { return 1 / static_cast<double>(labelled > 0 ? labelled : 1); }

/// One block per sequence, one thread per position. There are about a dozen classes, so a warp eventually uses all of
/// each cache line that it reads. Computed in f64. Memory bound: reads the logits (a second time from the cache),
/// writes their gradient.
template <class T, template <class> class Loss>
__global__ void __launch_bounds__(kThreads, 8)
    sequence_loss_kernel(gpu::Earlier earlier, std::int64_t positions, std::int64_t n, real_t<T>* dlogits,
                         SequenceScore* scores, const T* __restrict__ logits, const std::int32_t* __restrict__ labels) {
  earlier.wait();
  const std::int64_t first = blockIdx.x * positions;
  std::int64_t labelled = 0;
  for (std::int64_t p = threadIdx.x; p < positions; p += kThreads) labelled += labels[first + p] >= 0;
  labelled = gpu::block_reduce(labelled);
  const double share = share_of(labelled);
  SequenceScore mine;
  for (std::int64_t p = threadIdx.x; p < positions; p += kThreads) {
    const std::int64_t at = (first + p) * n;
    add_position<Loss>(mine, n, logits + at, labels[first + p], share, dlogits ? dlogits + at : nullptr);
  }
  const double sum = gpu::block_reduce(mine.loss);
  const std::int64_t correct = gpu::block_reduce(mine.correct);
  if (threadIdx.x != 0) return;
  SequenceScore& score = scores[blockIdx.x];
  score.loss = sum;
  score.labelled = labelled;
  score.correct = correct;
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
    const auto kernel =
        loss == TokenLoss::stablemax ? sequence_loss_kernel<T, Stablemax> : sequence_loss_kernel<T, Softmax>;
    gpu::launch(stream, {.grid = logits.shape()[0], .block = kThreads}, kernel, positions, n, dlogits.data<real_t<T>>(),
                scores.data(), logits.data<T>(), labels.data<std::int32_t>());
  });
  on_cpu(logits, [&]<class T>() {
    const auto add = loss == TokenLoss::stablemax ? add_position<Stablemax, T> : add_position<Softmax, T>;
    for (std::size_t b = 0; b < scores.size(); ++b) {
      const auto first = static_cast<std::int64_t>(b) * positions;
      const auto own = labels.span<const std::int32_t>().subspan(first, positions);
      SequenceScore score;
      score.labelled = std::ranges::count_if(own, [](std::int32_t label) { return label >= 0; });
      const double share = share_of(score.labelled);
      for (std::int64_t p = 0; p < positions; ++p) {
        const std::int64_t at = (first + p) * n;
        add(score, n, logits.data<T>() + at, own[p], share, dlogits ? dlogits.data<T>() + at : nullptr);
      }
      scores[b] = score;
    }
  });
}

}  // namespace lockstep::ops
