#include "halting_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// One block per sequence, which returns at once if the sequence has not halted. Only the picks and rows that are
/// needed cross the bus. Every thread draws the variant (25 numbers for a Sudoku): that takes no longer than one
/// thread's draw, and needs neither shared memory nor a barrier.
__global__ void __launch_bounds__(kThreads) begin_sequences_kernel(Sequences all) {
  if (all.halted[blockIdx.x] != 0) all.begin(blockIdx.x, threadIdx.x, kThreads);
}

struct Binary {
  double loss, derivative;
};
__device__ double logistic(double z) {
  const double e = std::exp(z < 0 ? z : -z);
  return z >= 0 ? 1 / (1 + e) : e / (1 + e);
}
__device__ Binary binary_cross_entropy(double z, double target) {
  const double size = z < 0 ? -z : z;
  return {(z > 0 ? z : 0) - z * target + std::log1p(std::exp(-size)), logistic(z) - target};
}

__device__ double segment_weight(double decay, std::int32_t steps) {
  double weight = 1;
  for (; steps > 0; --steps) weight *= decay;
  return weight;
}

/// Over the elements of x: one read, one write.
template <class T>
struct Decay {
  std::int64_t each;
  T* x;
  const std::int32_t* steps;
  double decay;
  template <int N>
  __device__ void at(std::int64_t i) const {
    x[i] *= static_cast<T>(segment_weight(decay, steps[gpu::quotient(i, each)]));
  }
};

/// One block, so that the sum has one order; a thread takes every kThreads-th sequence. A step has some hundreds of
/// sequences. This takes a few microseconds, mostly for the transfer of the metrics over the bus.
template <class T>
__global__ void __launch_bounds__(kThreads)
    halting_loss_kernel(std::int64_t sequences, real_t<T>* __restrict__ loss, real_t<T>* __restrict__ dq,
                        std::int32_t* __restrict__ steps, std::int32_t* __restrict__ halted, HaltingScore* metrics,
                        const T* __restrict__ q, const T* __restrict__ next_q, const SequenceScore* scores,
                        const std::int32_t* least, HaltingRule rule) {
  double total = 0;
  for (std::int64_t b = threadIdx.x; b < sequences; b += kThreads) {
    const SequenceScore score = scores[b];
    const bool exact = score.correct == score.labelled;
    const double q_halt = static_cast<double>(gpu::load(q + 2 * b)),
                 q_continue = static_cast<double>(gpu::load(q + 2 * b + 1));
    const std::int32_t count = steps[b] + 1;
    const bool last = count >= rule.most_steps;
    const bool stop =
        rule.most_steps > 1 ? (last || q_halt > (rule.q_continue ? q_continue : 0)) && count >= least[b] : last;
    steps[b] = count;
    halted[b] = stop;
    const Binary halt = binary_cross_entropy(q_halt, exact ? 1 : 0);
    Binary go_on{0, 0};
    if (next_q) {
      const double next_halt = static_cast<double>(gpu::load(next_q + 2 * b)),
                   next_continue = static_cast<double>(gpu::load(next_q + 2 * b + 1));
      go_on =
          binary_cross_entropy(q_continue, logistic(last || !(next_halt < next_continue) ? next_halt : next_continue));
    }
    const double weight = segment_weight(rule.decay, count - 1);
    total += weight * (score.loss + 0.5 * (halt.loss + go_on.loss));
    dq[2 * b] = static_cast<real_t<T>>(weight * 0.5 * halt.derivative);
    dq[2 * b + 1] = static_cast<real_t<T>>(weight * 0.5 * go_on.derivative);
    const bool counts = stop && score.labelled > 0;
    HaltingScore& f = metrics[b];
    f.count = counts;
    f.accuracy = counts ? static_cast<double>(score.correct) / static_cast<double>(score.labelled) : 0;
    f.exact = counts && exact;
    f.q_halt_accuracy = counts && (q_halt >= 0) == exact;
    f.steps = counts ? count : 0;
    f.lm_loss = score.loss;
    f.q_halt_loss = halt.loss;
    f.q_continue_loss = go_on.loss;
  }
  total = gpu::block_reduce(total);
  if (threadIdx.x == 0) *loss = static_cast<real_t<T>>(total);
}

}  // namespace

void begin_sequences(const Stream& stream, std::int64_t sequences, const Sequences& all) {
  gpu::launch(stream, {.grid = sequences, .block = kThreads}, begin_sequences_kernel, all);
}

template <class T>
void halting_loss(const Stream& stream, std::int64_t sequences, real_t<T>* loss, real_t<T>* dq, std::int32_t* steps,
                  std::int32_t* halted, HaltingScore* metrics, const T* q, const T* next_q, const SequenceScore* scores,
                  const std::int32_t* least, const HaltingRule& rule) {
  gpu::launch(stream, {.grid = 1, .block = kThreads}, halting_loss_kernel<T>, sequences, loss, dq, steps, halted,
              metrics, q, next_q, scores, least, rule);
}

template <class T>
void decay_sequences(const Stream& stream, std::int64_t elements, std::int64_t each, T* x, const std::int32_t* steps,
                     double decay) {
  gpu::map<T>(stream, elements, false, Decay<T>{each, x, steps, decay});
}

LOCKSTEP_EACH_STORAGE(halting_loss)
LOCKSTEP_EACH_FLOAT(decay_sequences)

}  // namespace lockstep::ops::cuda
