#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"
#include "sequence_loss_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// For the classes of a position: s(x), its sum over the classes, and the gradient of the cross-entropy.
template <class T>
struct Stablemax {
  __device__ static double s(double v) { return v >= 0 ? v + 1 : 1 / (1 - v); }  // mutant-equivalent: both are 1 at 0
  __device__ Stablemax(const T* x, std::int64_t n, std::int64_t label) {
    for (std::int64_t j = 0; j < n; ++j) sum += s(static_cast<double>(gpu::load(x + j)));
    hit = s(static_cast<double>(gpu::load(x + label)));
  }
  __device__ double loss() const { return std::log(sum) - std::log(hit); }
  __device__ double slope(double v, bool is_label) const {
    const double change = v >= 0 ? 1 : 1 / ((1 - v) * (1 - v));  // mutant-equivalent: both are 1 at 0
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

}  // namespace

template <class T>
void sequence_loss(const Stream& stream, std::int64_t sequences, std::int64_t positions, std::int64_t n,
                   real_t<T>* dlogits, SequenceScore* scores, const T* logits, const std::int32_t* labels,
                   TokenLoss loss) {
  const auto kernel =
      loss == TokenLoss::stablemax ? sequence_loss_kernel<T, Stablemax> : sequence_loss_kernel<T, Softmax>;
  gpu::launch(stream, {.grid = sequences, .block = kThreads}, kernel, positions, n, dlogits, scores, logits, labels);
}

LOCKSTEP_EACH_STORAGE(sequence_loss)

}  // namespace lockstep::ops::cuda
