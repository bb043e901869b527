#include "lockstep/ops/sequence_loss.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

constexpr int kThreads = 128;

/// For the classes of a position: s(x), its sum over the classes, and the gradient of the cross-entropy.
template <class T>
struct Stablemax {
  __device__ static double s(double v) { return v >= 0 ? v + 1 : 1 / (1 - v); }
  __device__ Stablemax(const T* x, std::int64_t n, std::int64_t label) {
    for (std::int64_t j = 0; j < n; ++j) sum += s(static_cast<double>(gpu::load(x + j)));
    hit = s(static_cast<double>(gpu::load(x + label)));
  }
  __device__ double loss() const { return std::log(sum) - std::log(hit); }
  __device__ double slope(double v, bool is_label) const {
    const double change = v >= 0 ? 1 : 1 / ((1 - v) * (1 - v));
    return change * (1 / sum - (is_label ? 1 / hit : 0));
  }
  double sum = 0, hit;
};

template <class T>
struct Softmax {
  __device__ Softmax(const T* x, std::int64_t n, std::int64_t label) {
    const auto at = [x](std::int64_t j) { return static_cast<double>(gpu::load(x + j)); };
    most = at(0);
    for (std::int64_t j = 1; j < n; ++j) most = at(j) > most ? at(j) : most;
    for (std::int64_t j = 0; j < n; ++j) sum += std::exp(at(j) - most);
    hit = at(label) - most;
  }
  __device__ double loss() const { return std::log(sum) - hit; }
  __device__ double slope(double v, bool is_label) const { return std::exp(v - most) / sum - (is_label ? 1 : 0); }
  double most, sum = 0, hit;
};

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
  const double share = 1 / static_cast<double>(labelled > 0 ? labelled : 1);
  double sum = 0;
  std::int64_t correct = 0;
  for (std::int64_t p = threadIdx.x; p < positions; p += kThreads) {
    const std::int64_t at = (first + p) * n, label = labels[first + p];
    if (label < 0) {
      for (std::int64_t j = 0; dlogits && j < n; ++j) dlogits[at + j] = 0;
      continue;
    }
    const T* x = logits + at;
    const Loss<T> loss(x, n, label);
    sum += share * loss.loss();
    for (std::int64_t j = 0; dlogits && j < n; ++j)
      dlogits[at + j] = static_cast<real_t<T>>(share * loss.slope(static_cast<double>(gpu::load(x + j)), j == label));
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < n; ++j) best = gpu::load(x + j) > gpu::load(x + best) ? j : best;
    correct += best == label;
  }
  sum = gpu::block_reduce(sum);
  correct = gpu::block_reduce(correct);
  if (threadIdx.x != 0) return;
  SequenceScore& score = scores[blockIdx.x];
  score.loss = sum;
  score.labelled = labelled;
  score.correct = correct;
}

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
    const auto kernel =
        loss == TokenLoss::stablemax ? sequence_loss_kernel<T, Stablemax> : sequence_loss_kernel<T, Softmax>;
    gpu::launch(stream, {.grid = logits.shape()[0], .block = kThreads}, kernel, positions, n, dlogits.data<real_t<T>>(),
                scores.data(), logits.data<T>(), labels.data<std::int32_t>());
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
