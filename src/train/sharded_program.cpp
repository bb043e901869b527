#include "lockstep/train/sharded_program.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

std::int64_t checked_batch(const RunConfig& config, int ranks, std::int64_t samples) {
  const std::int64_t batch = config.global_batch(ranks);
  require_usage(batch <= samples, "option batch.size = ", config.batch.size,
                config.batch.scope == "rank" ? " per rank" : "", ": a batch of ", batch, " is larger than the ",
                samples, " training samples of ", config.data.path);
  return batch;
}

ShardedProgram::ShardedProgram(World& world, const RunConfig& config, ShardTask& task, int threads)
    : world_(world),
      config_(config),
      task_(task),
      samples_(task.size(Split::train)),
      batch_(checked_batch(config, world.size(), samples_)),
      per_step_(batch_ * config.batch.accumulate),
      norm_ranges_(task.norm_ranges()),
      penalised_(!trainable_ranges(task.params(), [](const Param& p) { return p.l2 != 0; }).empty()),
      optimizer_(make_optimizer(config.optim, task.params(), trainable_ranges(task.params()))),
      step_(world.communicator(), task, config.step_options(threads)) {}

GlobalBatch ShardedProgram::batch_at(const TrainState& state, std::int64_t epoch, std::int64_t step,
                                     std::int64_t position) const {
  const std::int64_t count = std::min(per_step_, samples_ - position);
  return {.seed = config_.run.seed,
          .epoch = epoch,
          .step = step,
          .first = position,
          .count = count,
          .micro = batch_,
          .loss_scale = loss_scale(config_, state, count)};
}

GlobalBatch ShardedProgram::batch_after(const TrainState& state, const GlobalBatch& batch) const {
  const std::int64_t position = batch.first + batch.count;
  return position < samples_ ? batch_at(state, state.epoch, state.step + 1, position)
                             : batch_at(state, state.epoch + 1, state.step + 1, 0);
}

StepResult ShardedProgram::step(const TrainState& state, double lr, Ema* average, unsigned flags) {
  const GlobalBatch batch = batch_at(state, state.epoch, state.step, state.position);
  if (!logged_) step_.take_row_decisions(state.row_decisions);
  step_.start(batch, flags);  // forward, backward, reduce
  // The norm includes the gradient of a penalty, which needs the sum of weights from finish().
  std::optional<GradientNorm> norm;
  if (!penalised_) norm.emplace(step_.gradient(), norm_ranges_);
  step_.prepare(batch_after(state, batch));
  const StepSums sums = step_.finish();  // all ranks hold the same summed gradient
  if (!std::exchange(logged_, true)) {
    if (const std::string rows = step_.row_choice(); !rows.empty()) log::info("gradients of tables: ", rows);
  }
  StepResult result = {.advance = batch.count,
                       .samples = batch.count,
                       .loss = sums.loss,
                       .weight = sums.weight,
                       .flags = sums.flags,
                       .row_decisions = step_.row_decisions(),
                       .compute = step_.seconds().compute,
                       .reduce = step_.seconds().reduce};
  profile::Phase phase("update", result.update);
  if (sums.weight > 0) {
    const double weight = batch.loss_scale * sums.weight;
    result.loss += sums.weight * add_penalty(task_.params(), step_.gradient(), weight, config_.optim.lazy);
    if (!norm) norm.emplace(step_.gradient(), norm_ranges_);
    result.norm = norm->value() / weight;
    if (!overflowed(world_, config_, task_.params(), step_.gradient(), state, result)) {
      const double clip = clip_scale(result.norm, config_.optim.clip_norm);
      optimizer_->step(step_.gradient(), lr, clip / weight, average);
    }
  }
  phase.end();
  return result;
}

double loss_scale(const RunConfig& config, const TrainState& state, std::int64_t samples) {
  return config.storage() == DType::f16 ? state.loss_scale.of_sum(samples) : 1;
}

bool overflowed(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                const TrainState& state, StepResult& result) {
  result.scaled = config.storage() == DType::f16;
  const double mean = result.loss / result.weight;
  result.skipped = result.scaled && state.loss_scale.can_fall() && !(std::isfinite(mean) && std::isfinite(result.norm));
  if (!result.skipped) {
    require_finite(world, config, params, gradient, state, mean, result.norm);
    return false;
  }
  result.loss = result.weight = 0;
  return true;
}

void require_finite(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                    const TrainState& state, double loss, double norm) {
  if (std::isfinite(loss) && std::isfinite(norm)) return;
  // The sums are the same on all ranks, so all ranks get here.
  world.together("checking the step", [&] {
    std::string where = first_non_finite(params, gradient);
    if (!where.empty()) where = ", first in the gradient of " + where;
    std::string weights = first_non_finite(params, params.values());
    if (!weights.empty()) weights = "; the weights were not finite before the step: " + weights;
    throw Error(Fault::usage, join("step ", state.step, " (epoch ", state.epoch, "): the loss is ", loss,
                                   " and the norm of its gradient ", norm, where, weights,
                                   "; lower optim.lr = ", exact(config.optim.lr), " or set optim.clip_norm"));
  });
}

std::vector<std::pair<std::string, std::string>> ShardedProgram::facts() {
  const std::int64_t accumulate = config_.batch.accumulate;
  const std::string micro = accumulate > 1 ? join(" in ", accumulate, " micro-batches of ", batch_) : "";
  const bool replicas = config_.dist.parallel == "dp" && !config_.threads_are_ranks();
  const double share = static_cast<double>(per_step_) / static_cast<double>(config_.devices(world_.size()));
  return {{"batch", join(per_step_, " samples per step over all ", replicas ? "replicas" : "ranks", micro, ", ", share,
                         replicas ? " per replica" : " per rank")}};
}

std::unique_ptr<TrainingProgram> ShardTask::make_program(World& world, const RunConfig& config, int threads) {
  return std::make_unique<ShardedProgram>(world, config, *this, threads);
}

}  // namespace lockstep
