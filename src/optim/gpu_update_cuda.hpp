#pragma once
#include <cmath>

#include "lockstep/device/cuda_launch.hpp"
#include "optim/gpu_update_kernels.hpp"

/// Device functions for the end of a step.
namespace lockstep::optim_kernels::cuda {

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
        loss += reports.doubles ? *reinterpret_cast<const double*>(at)
                                : static_cast<double>(*reinterpret_cast<const T*>(at));
    }
  }
};

/// The factor of the summed loss in the backward pass.
__device__ inline double factor(const UpdateState& state, const GpuStepRecord& record, bool scaled) {
  return scaled ? state.scale.of_sum(record.samples) : 1;
}

/// The end of a step: the scalars of its update, the state for the next step, and the outcome for the host.
template <class T>
struct Decision {
  UpdateNow<T> now;
  UpdateState state;
  GpuOutcome outcome;
};

/// Decides how a step ends. One thread calls it. `sums` has the loss, weight and flags of all ranks, `squares` is the
/// gradient's sum of squares, `penalty` the sum of the weights' squares times their factors.
template <class T>
__device__ Decision<T> decide(const GpuOutcome& sums, const UpdateState& before, const GpuStepRecord& record,
                              double squares, double penalty, bool scaled, bool updates, double clip_norm) {
  Decision<T> d{.now = {}, .state = before, .outcome = sums};
  UpdateState& state = d.state;
  GpuOutcome& outcome = d.outcome;
  if (record.known != 0) {
    state.failed = 0;
    if (scaled) state.scale = record.loss_scale;
  }
  bool moves = updates && sums.weight > 0;
  if (moves) {
    const double weight = factor(state, record, scaled) * sums.weight;
    outcome.loss += sums.weight * penalty;
    outcome.norm = sqrt(squares) / weight;
    const bool finite = isfinite(outcome.loss / outcome.weight) && isfinite(outcome.norm);
    if (!finite && scaled && state.scale.can_fall())
      outcome.skipped = 1;
    else if (!finite)
      outcome.failed = 1;
    moves = finite && state.failed == 0;
    const double clip = clip_norm / (outcome.norm + 1e-6);
    const double scale = (clip_norm > 0 && clip < 1 ? clip : 1.0) / weight;
    const StepScalars& scalars = record.known != 0 || state.moved == 0 ? record.after_skip : record.after_step;
    for (std::size_t i = 0; i < scalars.size(); ++i) d.now.scalars[i] = static_cast<T>(i == 0 ? scale : scalars[i]);
    if (scaled) state.scale.update(outcome.skipped == 0);
  }
  d.now.moves = moves;
  state.moved = moves ? 1 : 0;
  if (outcome.failed != 0) state.failed = 1;
  return d;
}

/// Adds the first element that is not finite, if there is one, to the outcome of a step that failed. All threads of the
/// block call it; sm_found has one element per thread.
template <class T>
__device__ void note_first_bad(std::int64_t n, const T* x, std::int64_t* sm_found, GpuOutcome* outcome) {
  const int threads = static_cast<int>(blockDim.x);
  std::int64_t found = n;
  for (std::int64_t i = threadIdx.x; i < n && found == n; i += threads)
    if (!isfinite(x[i])) found = i;
  sm_found[threadIdx.x] = found;
  __syncthreads();
  for (int k = 0; threadIdx.x == 0 && k < threads; ++k)
    if (sm_found[k] < found) found = sm_found[k];
  if (threadIdx.x != 0 || found == n) return;
  outcome->bad_element = found;
  outcome->bad_value = static_cast<double>(x[found]);
}

}  // namespace lockstep::optim_kernels::cuda
