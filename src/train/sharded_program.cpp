#include "lockstep/train/sharded_program.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/optim/lazy_adam.hpp"

namespace lockstep {

namespace {

/// Defers updates of rows without gradient if every weight then has the bits of a dense update whenever it is read.
std::unique_ptr<Optimizer> optimizer_of(const RunConfig& config, ParamStore& params) {
  if (config.optim.ema == 0 && LazyAdam::defers(config.optim, params))
    return std::make_unique<LazyAdam>(config.optim, params);
  return make_optimizer(config.optim, params, trainable_ranges(params));
}

/// The configured end of a step (clipping, update, average) for a model on a GPU; nothing on the CPU.
std::optional<GpuUpdate> make_gpu_update(const RunConfig& config, ParamStore& params, Optimizer& optimizer,
                                         std::vector<FlatRange> norm_ranges) {
  if (!params.device().is_cuda()) return {};
  return GpuUpdate(
      params, &optimizer, std::move(norm_ranges),
      {.clip_norm = config.optim.clip_norm, .lazy = config.optim.lazy, .scaled = config.storage() == DType::f16});
}

/// The factor of a step's sum of losses in the backward pass: 1 except with fp16.
double loss_scale(const RunConfig& config, const TrainState& state, std::int64_t samples) {
  return config.storage() == DType::f16 ? state.loss_scale.of_sum(samples) : 1;
}

/// Whether the loss scale of fp16 made a gradient overflow, so that the step must update nothing. Sets `scaled` and
/// `skipped` of the outcome; on overflow also sets its loss and weight to 0. errors  as require_finite()
bool overflowed(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                const TrainState& state, StepOutcome& outcome) {
  outcome.scaled = config.storage() == DType::f16;
  const double mean = outcome.loss / outcome.weight;
  outcome.skipped =
      outcome.scaled && state.loss_scale.can_fall() && !(std::isfinite(mean) && std::isfinite(outcome.norm));
  if (!outcome.skipped) {
    require_finite(world, config, params, gradient, state, mean, outcome.norm);
    return false;
  }
  outcome.loss = outcome.weight = 0;
  return true;
}

/// Throws the error of a step whose loss or norm is not finite. params  null: the step has updated the weights.
/// element  describes the first bad element of the gradient, or "". The loss is the same on all ranks, so all call it.
void fail(World& world, const RunConfig& config, const ParamStore* params, std::int64_t step, std::int64_t epoch,
          const char* phase, double loss, double norm, const std::string& element) {
  world.together("checking the step", [&] {
    const std::string where = element.empty() ? "" : ", first in the gradient of " + element;
    std::string weights = params != nullptr ? first_non_finite(*params, params->values()) : "";
    if (!weights.empty()) weights = "; the weights were not finite before the step: " + weights;
    throw Error(Fault::usage,
                join("step ", step, " (epoch ", epoch, phase, "): the loss is ", loss, " and the norm of its gradient ",
                     norm, where, weights, "; lower optim.lr = ", exact(config.optim.lr), " or set optim.clip_norm"));
  });
}

/// The outcome of a step that a GPU has completed. Collective if the step failed. errors  as require_finite()
std::optional<StepOutcome> outcome_of(World& world, const RunConfig& config, const ParamStore& params,
                                      std::int64_t epoch, const std::optional<EndedStep>& ended) {
  if (!ended) return {};
  const GpuOutcome& found = ended->outcome;
  if (found.failed != 0)
    fail(world, config, &params, ended->step, epoch, "", found.loss / found.weight, found.norm,
         found.bad_element < 0 ? "" : element_text(params, found.bad_element, found.bad_value));
  const bool skipped = found.skipped != 0;
  return StepOutcome{.step = ended->step,
                     .loss = skipped ? 0 : found.loss,
                     .weight = skipped ? 0 : found.weight,
                     .norm = found.norm,
                     .scaled = config.storage() == DType::f16 && found.weight > 0,
                     .skipped = skipped,
                     .flags = static_cast<unsigned>(found.flags)};
}

}  // namespace

std::int64_t checked_batch(const RunConfig& config, int ranks, std::int64_t samples) {
  const std::int64_t batch = config.global_batch(ranks), micros = config.batch.accumulate;
  const bool per_rank = config.batch.per_rank > 0;
  require_usage(batch <= samples, "option batch.",
                per_rank ? "per_rank = " : "size = ", per_rank ? config.batch.per_rank : config.batch.size,
                ": a batch of ", batch, " is larger than the ", samples, " training samples of ", config.data.path);
  require_usage((micros - 1) * batch < samples, "option batch.accumulate = ", micros, ": with micro-batches of ", batch,
                ", ", (samples + batch - 1) / batch, " hold the ", samples, " training samples of ", config.data.path);
  return batch;
}

ShardedProgram::ShardedProgram(World& world, const RunConfig& config, ShardTask& task, int threads)
    : ShardedProgram(world, config, task, threads, checked_batch(config, world.size(), task.size(Split::train)), {}) {
  const std::int64_t samples = task.size(Split::train);
  epoch_ = {.positions = samples, .steps = (samples + per_step_ - 1) / per_step_};
}

ShardedProgram::ShardedProgram(World& world, const RunConfig& config, ShardTask& task, int threads, std::int64_t batch,
                               EpochLength epoch)
    : TrainingProgram(epoch),
      world_(world),
      config_(config),
      batch_(batch),
      per_step_(batch_ * config.batch.accumulate),
      task_(task),
      norm_ranges_(task.norm_ranges()),
      optimizer_(optimizer_of(config, task.params())),
      update_(make_gpu_update(config, task.params(), *optimizer_, norm_ranges_)),
      step_(make_sharded_step(world.communicator(), task,
                              config.step_options(threads, config.shards(batch, task.least_tree_shard())),
                              gpu_update())),
      rows_(task.row_source(), [this](const TrainState& at, std::vector<std::int64_t>& rows) {
        const GlobalBatch batch = batch_at(at);
        for (std::int64_t micro = 0; micro * batch_ < batch.count; ++micro)
          task_.reads(step_->rank_part(batch, micro, world_.rank()), rows);
        return StepRows::Step{batch.count, end_of(batch)};
      }) {}

GlobalBatch ShardedProgram::batch_at(const TrainState& state) {
  return {.seed = config_.run.seed,
          .epoch = state.epoch,
          .step = state.step,
          .first = state.position,
          .count = std::min(per_step_, epoch_.positions - state.position),
          .micro = batch_};
}

StepResult ShardedProgram::step(const TrainState& state, double lr, Ema* average, unsigned flags) {
  GlobalBatch batch = batch_at(state);
  if (!logged_) step_->take_row_decisions(state.row_decisions);
  rows_.fetch(state, epoch_.positions);
  StepResult result = {.advance = end_of(batch) - state.position, .samples = batch.count};
  if (step_->stays_on_gpu()) {
    profile::Phase phase("step on the GPU", result.compute);
    step_->start(batch, flags, {.lr = lr, .loss_scale = state.loss_scale, .average = average});
    last_epoch_ = state.epoch;
    result.outcome = outcome(step_->take(false));
    phase.end();
  } else {
    batch.loss_scale = loss_scale(config_, state, batch.count);
    const StepSums sums = step_->run(batch, flags);  // all ranks hold the same summed gradient
    result.compute = step_->seconds().compute;
    result.reduce = step_->seconds().reduce;
    profile::Phase phase("update", result.update);
    update(state, batch, sums, lr, average, result);
    phase.end();
  }
  if (!std::exchange(logged_, true))
    if (const std::string rows = step_->row_choice(); !rows.empty()) log::info("gradients of tables: ", rows);
  result.row_decisions = step_->row_decisions();
  return result;
}

void ShardedProgram::update(const TrainState& state, const GlobalBatch& batch, const StepSums& sums, double lr,
                            Ema* average, StepResult& result) {
  StepOutcome& outcome = result.outcome.emplace(
      StepOutcome{.step = batch.step, .loss = sums.loss, .weight = sums.weight, .flags = sums.flags});
  if (sums.weight == 0) return;
  const double weight = batch.loss_scale * sums.weight;
  outcome.loss += sums.weight * add_penalty(task_.params(), step_->gradient(), weight, config_.optim.lazy);
  outcome.norm = gradient_norm(step_->gradient(), norm_ranges_) / weight;
  if (!overflowed(world_, config_, task_.params(), step_->gradient(), state, outcome)) {
    const double clip = clip_scale(outcome.norm, config_.optim.clip_norm);
    prepare_update();
    result.change = world_.change();
    optimizer_->step(step_->gradient(), lr, clip / weight, average);
    update_more(lr, average);
    updated(batch.step);
  }
}

std::optional<StepOutcome> ShardedProgram::settle(UpTo what) {
  std::optional<StepOutcome> last;
  if (step_->stays_on_gpu()) last = outcome(step_->take(true));
  if (what != UpTo::outcomes) optimizer_->flush();
  return last;
}

bool ShardedProgram::settle_alone() {
  if (step_->stays_on_gpu()) return false;
  optimizer_->flush();
  return true;
}

std::optional<StepOutcome> ShardedProgram::outcome(const std::optional<EndedStep>& ended) {
  const std::optional<StepOutcome> found = outcome_of(world_, config_, task_.params(), last_epoch_, ended);
  if (found && !found->skipped) updated(found->step);
  return found;
}

void require_finite(World& world, const RunConfig& config, const ParamStore& params, const Tensor& gradient,
                    const TrainState& state, double loss, double norm) {
  if (!std::isfinite(loss) || !std::isfinite(norm))
    fail(world, config, &params, state.step, state.epoch, "", loss, norm, first_non_finite(params, gradient));
}

void require_finite(World& world, const RunConfig& config, std::int64_t step, std::int64_t epoch, const char* phase,
                    double loss, double norm) {
  if (!std::isfinite(loss) || !std::isfinite(norm)) fail(world, config, nullptr, step, epoch, phase, loss, norm, "");
}

std::string ShardedProgram::micro_batches() const {
  const std::int64_t accumulate = config_.batch.accumulate;
  return accumulate > 1 ? join(", in ", accumulate, " micro-batches of ", batch_) : "";
}

ProgramFacts ShardedProgram::facts() {
  return {.backend = step_->backend(),
          .sends_buckets = !config_.run.reproducible,
          .least_shard = task_.least_shard(),
          .shards = config_.shards(batch_, task_.least_tree_shard()),
          .lines = {{"batch", config_.batch_text(per_step_, world_.size()) + micro_batches()}}};
}

std::unique_ptr<TrainingProgram> ShardTask::make_program(World& world, const RunConfig& config, int threads) {
  return std::make_unique<ShardedProgram>(world, config, *this, threads);
}

}  // namespace lockstep
