#include "lockstep/optim/gpu_update.hpp"

#include <utility>

#include "lockstep/base/profile.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/on_gpu.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/gpu_update_cuda.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

/// The partial sums of squares of a range of the gradient, or of a penalised parameter.
struct PartialSums {
  std::int64_t count;
  double l2;  ///< of a penalised parameter
};

/// A penalised parameter.
struct Penalty {
  std::int64_t begin, rows, columns;  ///< in the flat vectors
  std::int64_t touched;               ///< not 0: zero gradients of rows stay 0
  std::int64_t first_sum, sums;       ///< its partial sums of squares
  double l2;
};

/// The operands of decide_kernel(). Pointers are device pointers, except for `outcome`.
template <class T>
struct EndOperands {
  RankReports reports;
  const GpuStepRecord* record;
  const double* sums;  ///< of the ranges, then of the penalised parameters
  const PartialSums* parts;
  int ranges, penalised;
  bool scaled, updates;  ///< GpuUpdate::Options; whether there is an optimizer
  double clip_norm;
  std::int64_t size;
  const T* gradient;  ///< (size)
  UpdateState* state;
  UpdateNow<T>* now;
  GpuOutcome* outcome;
};

constexpr int kThreads = 256;

/// Sets the loss scale of the step, and the seed of its backward pass.
template <class T>
__global__ void open_kernel(gpu::Earlier earlier, T* seed, UpdateState* state, const GpuStepRecord* record) {
  earlier.wait();
  if (record->known != 0) state->scale = record->loss_scale;
  *seed = static_cast<T>(factor(*state, *record, true));
}

/// gradient += 2 l2 weight values for each penalised parameter, where the weight is the sum over all ranks, times the
/// loss scale if `scaled`.
///
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

/// Writes *now, *state and *outcome. One block. The first thread decides; the others load the partial sums, and look
/// for the bad element of a step that failed. Latency bound: at most 1024 partial sums per range of the gradient.
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
}  // namespace lockstep::optim_kernels::cuda

namespace lockstep {

namespace kernels = optim_kernels::cuda;
using ops::on_gpu_in_floats;
using optim_kernels::UpdateState;

GpuUpdate::GpuUpdate(ParamStore& params, Optimizer* optimizer, std::vector<FlatRange> norm_ranges,
                     const Options& options)
    : params_(params),
      optimizer_(optimizer),
      norm_ranges_(std::move(norm_ranges)),
      options_(options),
      seed_(real_dtype(params.storage()), Shape{}, params.device()),
      state_(params.device(), sizeof(UpdateState)),
      now_(params.device(), sizeof(optim_kernels::UpdateNow<double>)) {
  if constexpr (kHasCuda) {
    std::vector<kernels::Penalty> penalties;
    std::vector<kernels::PartialSums> parts;
    std::int64_t count = 0;
    const auto add = [&](std::int64_t elements, double l2) {
      parts.push_back({kernels::partial_sums(elements), l2});
      count += parts.back().count;
    };
    for (const FlatRange& range : norm_ranges_) add(range.count(), 0);
    for (const Param& p : params.all()) {
      if (optimizer == nullptr || p.l2 == 0 || !p.trainable) continue;
      add(p.shape.size(), p.l2);
      penalties.push_back({.begin = p.offset,
                           .rows = p.shape.rows(),
                           .columns = p.shape.columns(),
                           .touched = options.lazy && p.row_sparse,
                           .first_sum = penalty_sums_,
                           .sums = parts.back().count,
                           .l2 = p.l2});
      penalty_sums_ += parts.back().count;
    }
    penalised_ = std::ssize(penalties);
    penalties_ = Buffer(params.device(), penalties.size() * sizeof(kernels::Penalty));
    const Stream stream(params.device());
    visit_float(seed().dtype(), [&]<class T>() {
      const T one = 1;
      copy_bytes(stream, seed().raw(), &one, sizeof one);
      stream.synchronize();
    });
    parts_ = Buffer(params.device(), parts.size() * sizeof(kernels::PartialSums));
    sums_ = Buffer(params.device(), static_cast<std::size_t>(count) * sizeof(double));
    copy_bytes(stream, parts_.data(), parts.data(), parts_.size_bytes());
    copy_bytes(stream, penalties_.data(), penalties.data(), penalties_.size_bytes());
    stream.synchronize();
  }
}

void GpuUpdate::describe(GpuStepRecord& record, double lr, const LossScale& scale, int open_steps) const {
  record.known = open_steps == 0 ? 1 : 0;
  record.loss_scale = scale;
  record.lr = lr;
  if (optimizer_ == nullptr) return;
  record.after_skip = optimizer_->scalars(lr, optimizer_->steps() + 1);
  if (open_steps > 0) record.after_step = optimizer_->scalars(lr, optimizer_->steps() + 2);
}

void GpuUpdate::count(const GpuOutcome& outcome) const {
  if (optimizer_ != nullptr && outcome.weight > 0 && outcome.skipped == 0 && outcome.failed == 0)
    optimizer_->set_steps(optimizer_->steps() + 1);
}

void GpuUpdate::open(const Stream& stream, const GpuStepRecord* record) const {
  on_gpu_in_floats(seed(), [&]<class T>() {
    gpu::launch(stream, {}, kernels::open_kernel<T>, seed().data<T>(), reinterpret_cast<UpdateState*>(state_.data()),
                record);
  });
}

void GpuUpdate::decide(const Stream& stream, const Tensor& gradient, const RankReports& reports,
                       const GpuStepRecord* record, GpuOutcome* outcome) const {
  auto* state = reinterpret_cast<UpdateState*>(state_.data());
  auto* sums = reinterpret_cast<double*>(sums_.data());
  on_gpu_in_floats(gradient, [&]<class T>() {
    double* at = sums;
    for (const FlatRange& range : norm_ranges_) at += kernels::partial_sums(range.count());
    if (penalty_sums_ > 0)
      gpu::launch(stream, {.grid = penalty_sums_, .block = kernels::kThreads}, kernels::penalise_kernel<T>,
                  reinterpret_cast<const kernels::Penalty*>(penalties_.data()), gradient.data<T>(),
                  params_.values().data<T>(), at, state, reports, record, std::int64_t{options_.scaled});
    at = sums;
    for (const FlatRange& range : norm_ranges_) {
      kernels::sum_squares(stream, at, range.count(), gradient.data<T>() + range.begin);
      at += kernels::partial_sums(range.count());
    }
    const kernels::EndOperands<T> end = {.reports = reports,
                                         .record = record,
                                         .sums = sums,
                                         .parts = reinterpret_cast<const kernels::PartialSums*>(parts_.data()),
                                         .ranges = static_cast<int>(norm_ranges_.size()),
                                         .penalised = static_cast<int>(penalised_),
                                         .scaled = options_.scaled,
                                         .updates = optimizer_ != nullptr,
                                         .clip_norm = options_.clip_norm,
                                         .size = gradient.size(),
                                         .gradient = gradient,
                                         .state = state,
                                         .now = reinterpret_cast<optim_kernels::UpdateNow<T>*>(now_.data()),
                                         .outcome = outcome};
    gpu::launch(stream, {.block = kernels::kThreads}, kernels::decide_kernel<T>, end);
  });
}

void GpuUpdate::close(const Stream& stream, const Tensor& gradient, const RankReports& reports,
                      const GpuStepRecord* record, GpuOutcome* outcome, Ema* average) const {
  const profile::Span span("update", profile::Kind::phase);
  decide(stream, gradient, reports, record, outcome);
  if (optimizer_ != nullptr) optimizer_->enqueue_step(gradient, now(), average);
  if (!rows_) return;
  const Tensor& table = rows_->table->value;
  // The table is not averaged: its shadow is a copy.
  const Tensor shadow = average != nullptr ? average->state()[rows_->table->index].value : Tensor{};
  on_gpu_in_floats(table, [&]<class T>() {
    kernels::sign_descent<T>(stream,
                             {.table = table,
                              .shadow = shadow,
                              .gradients = rows_->gradients,
                              .columns = table.columns(),
                              .ids = rows_->ids,
                              .samples = rows_->ids.size(),
                              .lr = rows_->rate,
                              .weight_decay = rows_->weight_decay,
                              .record = record,
                              .moves = &reinterpret_cast<const optim_kernels::UpdateNow<T>*>(now_.data())->moves});
  });
}

}  // namespace lockstep
