#include "lockstep/optim/gpu_update.hpp"

#include <utility>

#include "lockstep/base/profile.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/gpu_update_kernels.hpp"

namespace lockstep {

using optim_kernels::PartialSums;
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
    std::vector<optim_kernels::Penalty> penalties;
    std::vector<PartialSums> parts;
    std::int64_t count = 0;
    const auto add = [&](std::int64_t elements, double l2) {
      parts.push_back({optim_kernels::cuda::partial_sums(elements), l2});
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
    penalties_ = Buffer(params.device(), penalties.size() * sizeof(optim_kernels::Penalty));
    const Stream stream(params.device());
    visit_float(seed().dtype(), [&]<class T>() {
      const T one = 1;
      copy_bytes(stream, seed().raw(), &one, sizeof one);
      stream.synchronize();
    });
    parts_ = Buffer(params.device(), parts.size() * sizeof(PartialSums));
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

void GpuUpdate::open([[maybe_unused]] const Stream& stream, [[maybe_unused]] const GpuStepRecord* record) const {
  visit_float(seed().dtype(), [&]<class T>() {
    if constexpr (kHasCuda)
      optim_kernels::cuda::open_step(stream, seed().data<T>(), reinterpret_cast<UpdateState*>(state_.data()), record);
  });
}

void GpuUpdate::decide([[maybe_unused]] const Stream& stream, const Tensor& gradient, const RankReports& reports,
                       const GpuStepRecord* record, GpuOutcome* outcome) const {
  auto* state = reinterpret_cast<UpdateState*>(state_.data());
  auto* sums = reinterpret_cast<double*>(sums_.data());
  visit_float(gradient.dtype(), [&]<class T>() {
    if constexpr (kHasCuda) {
      namespace cuda = optim_kernels::cuda;
      std::int64_t range_sums = 0;
      for (const FlatRange& range : norm_ranges_) range_sums += cuda::partial_sums(range.count());
      if (penalty_sums_ > 0)
        cuda::penalise<T>(stream, reinterpret_cast<const optim_kernels::Penalty*>(penalties_.data()), penalty_sums_,
                          gradient, params_.values(), sums + range_sums, state, reports, record, options_.scaled);
      double* at = sums;
      for (const FlatRange& range : norm_ranges_) {
        cuda::sum_squares(stream, at, range.count(), gradient.data<T>() + range.begin);
        at += cuda::partial_sums(range.count());
      }
      cuda::decide_step<T>(stream, {.reports = reports,
                                    .record = record,
                                    .sums = sums,
                                    .parts = reinterpret_cast<const PartialSums*>(parts_.data()),
                                    .ranges = static_cast<int>(norm_ranges_.size()),
                                    .penalised = static_cast<int>(penalised_),
                                    .scaled = options_.scaled,
                                    .updates = optimizer_ != nullptr,
                                    .clip_norm = options_.clip_norm,
                                    .size = gradient.size(),
                                    .gradient = gradient,
                                    .state = state,
                                    .now = reinterpret_cast<optim_kernels::UpdateNow<T>*>(now_.data()),
                                    .outcome = outcome});
    }
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
  visit_float(table.dtype(), [&]<class T>() {
    if constexpr (kHasCuda)
      optim_kernels::cuda::sign_descent<T>(
          stream, {.table = table,
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
