#include "halting_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// One block per sequence, which returns at once if the sequence has not halted. Only the picks and rows that are
/// needed cross the bus. Every thread draws the variant (25 numbers for a Sudoku): that takes no longer than one
/// thread's draw, and needs neither shared memory nor a barrier.
__global__ void __launch_bounds__(kThreads) begin_sequences_kernel(gpu::Earlier earlier, Sequences all) {
  earlier.wait();
  if (all.halted[blockIdx.x] != 0) all.begin(blockIdx.x, threadIdx.x, kThreads);
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
    halting_loss_kernel(gpu::Earlier earlier, std::int64_t sequences, real_t<T>* __restrict__ loss,
                        real_t<T>* __restrict__ dq, std::int32_t* __restrict__ steps, std::int32_t* __restrict__ halted,
                        HaltingScore* metrics, const T* __restrict__ q, const T* __restrict__ next_q,
                        const SequenceScore* scores, const std::int32_t* least, HaltingRule rule) {
  earlier.wait();
  double total = 0;
  for (std::int64_t b = threadIdx.x; b < sequences; b += kThreads) {
    const auto pair = [b](const T* logits) {
      return Logits{static_cast<double>(gpu::load(logits + 2 * b)), static_cast<double>(gpu::load(logits + 2 * b + 1))};
    };
    total += count_segment(rule, least[b], scores[b], pair(q), next_q ? std::optional(pair(next_q)) : std::nullopt,
                           steps[b], halted[b], dq + 2 * b, metrics[b]);
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
