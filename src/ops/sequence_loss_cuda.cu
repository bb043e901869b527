#include "lockstep/device/cuda_reduce.hpp"
#include "sequence_loss_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// Of the classes of a position: s(x), its sum over the classes, and the gradient of the cross-entropy.
template <class T>
struct Stablemax {
  __device__ static double s(double v) { return v >= 0 ? v + 1 : 1 / (1 - v); }
  __device__ Stablemax(const T* x, std::int64_t n, std::int64_t label) {
    for (std::int64_t j = 0; j < n; ++j) sum += s(static_cast<double>(x[j]));
    hit = s(static_cast<double>(x[label]));
  }
  __device__ double loss() const { return std::log(sum) - std::log(hit); }
  __device__ double slope(T x, bool is_label) const {
    const double v = static_cast<double>(x), change = v >= 0 ? 1 : 1 / ((1 - v) * (1 - v));
    return change * (1 / sum - (is_label ? 1 / hit : 0));
  }
  double sum = 0, hit;
};

template <class T>
struct Softmax {
  __device__ Softmax(const T* x, std::int64_t n, std::int64_t label) {
    T largest = x[0];
    for (std::int64_t j = 1; j < n; ++j) largest = x[j] > largest ? x[j] : largest;
    most = static_cast<double>(largest);
    for (std::int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<double>(x[j]) - most);
    hit = static_cast<double>(x[label]) - most;
  }
  __device__ double loss() const { return std::log(sum) - hit; }
  __device__ double slope(T x, bool is_label) const {
    return std::exp(static_cast<double>(x) - most) / sum - (is_label ? 1 : 0);
  }
  double most, sum = 0, hit;
};

/// A block per sequence, a thread per position: there are a dozen classes, so that the lines that a warp reads are used
/// whole, if not at once. Computed in f64. Memory bound: reads the logits (again from the cache), writes their gradient;
/// labels come and scores go over the bus.
template <class T, template <class> class Loss>
__global__ void __launch_bounds__(kThreads, 8)
    sequence_loss_kernel(std::int64_t positions, std::int64_t n, T* dlogits, SequenceScore* scores,
                         const T* __restrict__ logits, const std::int32_t* __restrict__ labels) {
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
      for (std::int64_t j = 0; dlogits && j < n; ++j) dlogits[at + j] = T{0};
      continue;
    }
    const T* x = logits + at;
    const Loss<T> loss(x, n, label);
    sum += share * loss.loss();
    for (std::int64_t j = 0; dlogits && j < n; ++j)
      dlogits[at + j] = static_cast<T>(share * loss.slope(x[j], j == label));
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < n; ++j) best = x[j] > x[best] ? j : best;
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

}  // namespace

template <class T>
void sequence_loss(const Stream& stream, std::int64_t sequences, std::int64_t positions, std::int64_t n, T* dlogits,
                   SequenceScore* scores, const T* logits, const std::int32_t* labels, TokenLoss loss) {
  if (sequences == 0) return;
  const auto kernel =
      loss == TokenLoss::stablemax ? sequence_loss_kernel<T, Stablemax> : sequence_loss_kernel<T, Softmax>;
  gpu::launch(stream, {.grid = dim3(static_cast<unsigned>(sequences)), .block = kThreads}, kernel, positions, n,
              dlogits, scores, logits, labels);
}

template void sequence_loss(const Stream&, std::int64_t, std::int64_t, std::int64_t, float*, SequenceScore*,
                            const float*, const std::int32_t*, TokenLoss);
template void sequence_loss(const Stream&, std::int64_t, std::int64_t, std::int64_t, double*, SequenceScore*,
                            const double*, const std::int32_t*, TokenLoss);

}  // namespace lockstep::ops::cuda
