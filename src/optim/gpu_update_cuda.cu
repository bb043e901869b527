#include "optim/gpu_update_cuda.hpp"

#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_reduce.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void open_kernel(gpu::Earlier earlier, T* seed, UpdateState* state, const GpuStepRecord* record) {
  earlier.wait();
  if (record->known != 0) state->scale = record->loss_scale;
  *seed = static_cast<T>(factor(*state, *record, true));
}

/// One block per partial sum. A block sums its share of a parameter's squares, in the order of sum_squares_kernel, and
/// updates its share of the gradient, with `touched` one row per warp. Memory bound: reads values and gradient, writes
/// the gradient.
template <class T>
__global__ void __launch_bounds__(kThreads)
    penalise_kernel(gpu::Earlier earlier, const Penalty* penalties, T* gradient, const T* __restrict__ values,
                    double* sums, const UpdateState* state, RankReports reports, const GpuStepRecord* record,
                    std::int64_t scaled) {
  earlier.wait();
  __shared__ double sm_weight;
  const std::int64_t block = blockIdx.x;
  while (block >= penalties->first_sum + penalties->sums) ++penalties;
  const Penalty p = *penalties;
  if (threadIdx.x == 0) sm_weight = factor(*state, *record, scaled != 0) * Sums<T>(reports).weight;
  __syncthreads();
  const T by = static_cast<T>(2 * p.l2 * sm_weight);
  const T* x = values + p.begin;
  T* y = gradient + p.begin;
  const std::int64_t n = p.rows * p.columns, stride = p.sums * kThreads;
  double sum = 0;
#pragma unroll 8
  for (std::int64_t i = (block - p.first_sum) * kThreads + threadIdx.x; i < n; i += stride) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
    if (p.touched == 0) y[i] += by * x[i];
  }
  sum = gpu::block_reduce(sum);
  if (threadIdx.x == 0) sums[block] = sum;
  if (p.touched == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarp;
  constexpr int kWarps = kThreads / gpu::kWarp;
  for (std::int64_t r = (block - p.first_sum) * kWarps + threadIdx.x / gpu::kWarp; r < p.rows; r += p.sums * kWarps) {
    bool mine = false;
    for (std::int64_t c = lane; c < p.columns; c += gpu::kWarp) mine = mine || y[r * p.columns + c] != 0;
    if (!__any_sync(gpu::kWholeWarp, mine)) continue;
    for (std::int64_t c = lane; c < p.columns; c += gpu::kWarp) y[r * p.columns + c] += by * x[r * p.columns + c];
  }
}

/// Adds partial sums in order, for the bits of GpuSums. All threads of the block call it; the first receives the sum.
__device__ double add_in_order(const double* sums, std::int64_t count, double* sm_sums) {
  double sum = 0;
  for (std::int64_t first = 0; first < count; first += kThreads) {
    const int here = static_cast<int>(count - first < kThreads ? count - first : kThreads);
    const int i = static_cast<int>(threadIdx.x);
    __syncthreads();
    if (i < here) sm_sums[i] = sums[first + i];
    __syncthreads();
    for (int k = 0; i == 0 && k < here; ++k) sum += sm_sums[k];
  }
  return sum;
}

/// One block. The first thread decides; the others load the partial sums, and look for the bad element of a step that
/// failed. Latency bound: at most 1024 partial sums per range of the gradient.
template <class T>
__global__ void __launch_bounds__(kThreads) decide_kernel(gpu::Earlier earlier, EndOperands<T> j) {
  earlier.wait();
  __shared__ double sm_sums[kThreads];
  __shared__ std::int64_t sm_found[kThreads];
  __shared__ bool sm_fails;
  const double* sums = j.sums;
  double squares = 0, penalty = 0;
  for (int part = 0; part < j.ranges + j.penalised; ++part) {
    const PartialSums& own = j.parts[part];
    const double sum = add_in_order(sums, own.count, sm_sums);
    if (part < j.ranges)
      squares += sum;
    else
      penalty += own.l2 * sum;
    sums += own.count;
  }
  if (threadIdx.x == 0) {
    const Sums<T> all(j.reports);
    const Decision<T> made = decide<T>({.loss = all.loss, .weight = all.weight, .flags = all.flags}, *j.state,
                                       *j.record, squares, penalty, j.scaled, j.updates, j.clip_norm);
    *j.now = made.now;
    *j.state = made.state;
    *j.outcome = made.outcome;
    sm_fails = made.outcome.failed != 0;
  }
  __syncthreads();
  if (!sm_fails) return;
  note_first_bad(j.size, j.gradient, sm_found, j.outcome);
}

}  // namespace

template <class T>
void open_step(const Stream& stream, T* seed, UpdateState* state, const GpuStepRecord* record) {
  gpu::launch(stream, {}, open_kernel<T>, seed, state, record);
}
template <class T>
void penalise(const Stream& stream, const Penalty* penalties, std::int64_t blocks, T* gradient, const T* values,
              double* sums, const UpdateState* state, const RankReports& reports, const GpuStepRecord* record,
              bool scaled) {
  gpu::launch(stream, {.grid = blocks, .block = kThreads}, penalise_kernel<T>, penalties, gradient, values, sums, state,
              reports, record, std::int64_t{scaled});
}
template <class T>
void decide_step(const Stream& stream, const EndOperands<T>& step) {
  gpu::launch(stream, {.block = kThreads}, decide_kernel<T>, step);
}

LOCKSTEP_EACH_FLOAT(open_step, penalise, decide_step)

}  // namespace lockstep::optim_kernels::cuda
