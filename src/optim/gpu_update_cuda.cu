#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "optim/gpu_update_kernels.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// The sums over ranks, in the order of the ranks.
template <class T>
struct Sums {
  double loss = 0, weight = 0;
  std::int64_t flags = 0;
  __device__ explicit Sums(const RankReports& reports) {
    const std::byte* at = reports.bytes;
    for (std::int64_t rank = 0; rank < reports.ranks; ++rank) {
      const auto* report = reinterpret_cast<const RankReport*>(at);
      weight += report->weight;
      flags |= static_cast<std::int64_t>(report->flags);
      at += sizeof(RankReport);
      for (std::int64_t m = 0; m < reports.micros; ++m, at += sizeof(double))
        loss += static_cast<double>(*reinterpret_cast<const T*>(at));
    }
  }
};

/// The factor of the summed loss in the backward pass.
__device__ double factor(const UpdateState& state, const GpuStepRecord& record, bool scaled) {
  return scaled ? state.scale.of_sum(record.samples) : 1;
}

template <class T>
__global__ void open_kernel(T* seed, UpdateState* state, const GpuStepRecord* record) {
  if (record->known != 0) state->scale = record->loss_scale;
  *seed = static_cast<T>(factor(*state, *record, true));
}

/// A block of the parameter with partial sum blockIdx.x: its share of the squares, in the order of sum_squares_kernel, and
/// of the gradient. With `touched`, a warp has a row. Memory bound: reads values and gradient, writes the gradient.
template <class T>
__global__ void __launch_bounds__(kThreads)
    penalise_kernel(const Penalty* penalties, T* gradient, const T* __restrict__ values, double* sums,
                    const UpdateState* state, RankReports reports, const GpuStepRecord* record, std::int64_t scaled) {
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
  // mutant-equivalent: another thread or block does the same work
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarp;
  constexpr int kWarps = kThreads / gpu::kWarp;
  for (std::int64_t r = (block - p.first_sum) * kWarps + threadIdx.x / gpu::kWarp; r < p.rows; r += p.sums * kWarps) {
    bool mine = false;
    for (std::int64_t c = lane; c < p.columns; c += gpu::kWarp) mine = mine || y[r * p.columns + c] != 0;
    if (!__any_sync(gpu::kWholeWarp, mine)) continue;
    for (std::int64_t c = lane; c < p.columns; c += gpu::kWarp) y[r * p.columns + c] += by * x[r * p.columns + c];
  }
}

/// Adds partial sums in order, for the bits of GpuSums. All threads of the block call it; the first one gets the sum.
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

/// The first element that is not finite, or -1, for the first thread of the block.
template <class T>
__device__ std::int64_t first_bad(std::int64_t n, const T* x, std::int64_t* sm_found) {
  std::int64_t found = n;
  for (std::int64_t i = threadIdx.x; i < n && found == n; i += kThreads)
    if (!isfinite(x[i])) found = i;
  sm_found[threadIdx.x] = found;
  __syncthreads();
  for (int k = 0; threadIdx.x == 0 && k < kThreads; ++k)
    if (sm_found[k] < found) found = sm_found[k];
  return found < n ? found : -1;
}

/// One block. The first thread decides; the others load the partial sums, and look for the bad element of a step that
/// failed. Latency bound: at most 1024 partial sums per range of the gradient.
template <class T>
__global__ void __launch_bounds__(kThreads) judge_kernel(Judgement<T> j) {
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
    UpdateState state = *j.state;
    const GpuStepRecord& record = *j.record;
    if (record.known != 0) {
      state.failed = 0;
      if (j.scaled) state.scale = record.loss_scale;
    }
    const Sums<T> all(j.reports);
    GpuOutcome outcome = {.loss = all.loss, .weight = all.weight, .flags = all.flags};
    bool moves = j.updates && all.weight > 0;
    if (moves) {
      const double weight = factor(state, record, j.scaled) * all.weight;
      outcome.loss += all.weight * penalty;
      outcome.norm = sqrt(squares) / weight;
      const bool finite = isfinite(outcome.loss / outcome.weight) && isfinite(outcome.norm);
      if (!finite && j.scaled && state.scale.can_fall())
        outcome.skipped = 1;
      else if (!finite)
        outcome.failed = 1;
      moves = finite && state.failed == 0;
      const double clip = j.clip_norm / (outcome.norm + 1e-6);
      const double scale = (j.clip_norm > 0 && clip < 1 ? clip : 1.0) / weight;
      const StepScalars& scalars = record.known != 0 || state.moved == 0 ? record.after_skip : record.after_step;
      for (std::size_t i = 0; i < scalars.size(); ++i) j.now->scalars[i] = static_cast<T>(i == 0 ? scale : scalars[i]);
      if (j.scaled) state.scale.update(outcome.skipped == 0);
    }
    j.now->moves = moves;
    state.moved = moves ? 1 : 0;
    if (outcome.failed != 0) state.failed = 1;
    sm_fails = outcome.failed != 0;
    *j.state = state;
    *j.outcome = outcome;
  }
  __syncthreads();
  if (!sm_fails) return;
  const std::int64_t bad = first_bad(j.size, j.gradient, sm_found);
  if (threadIdx.x != 0 || bad < 0) return;
  j.outcome->bad_element = bad;
  j.outcome->bad_value = static_cast<double>(j.gradient[bad]);
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
  gpu::launch(stream, {.grid = static_cast<unsigned>(blocks), .block = kThreads}, penalise_kernel<T>, penalties,
              gradient, values, sums, state, reports, record, std::int64_t{scaled});
}
template <class T>
void judge(const Stream& stream, const Judgement<T>& step) {
  gpu::launch(stream, {.block = kThreads}, judge_kernel<T>, step);
}

LOCKSTEP_EACH_FLOAT(open_step)
LOCKSTEP_EACH_FLOAT(penalise)
LOCKSTEP_EACH_FLOAT(judge)

}  // namespace lockstep::optim_kernels::cuda
