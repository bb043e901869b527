#include "tasks/hrm/hrm_program.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/optim/sign_sgd.hpp"
#include "lockstep/tasks/hrm/hrm_config.hpp"
#include "lockstep/train/sharded_program.hpp"

namespace lockstep {

HrmProgram::HrmProgram(World& world, const RunConfig& config, HrmTask& model, int threads)
    : world_(world),
      config_(config),
      model_(model),
      batch_(config.global_batch(world.size())),
      per_step_(batch_ * config.batch.accumulate),
      puzzle_rate_(model.options().puzzle_lr > 0 ? model.options().puzzle_lr / config.optim.lr : 1),
      ranges_(trainable_ranges(model.params())),
      optimizer_(make_optimizer(config.optim, model.params(), ranges_)),
      update_(make_gpu_update(config, model.params(), *optimizer_, ranges_)),
      step_(world.communicator(), model, config.step_options(threads), update_ ? &*update_ : nullptr) {
  model_.begin_run(per_step_);
  interval_.resize(static_cast<std::size_t>(per_step_));
  if (const Param* table = model.network().puzzle_table(); table != nullptr && update_) {
    const HrmSlots& slots = model.slots();
    update_->descend({.table = table,
                      .ids = slots.identifiers,
                      .gradients = slots.puzzle_gradient,
                      .rate = puzzle_rate_,
                      .weight_decay = model.options().puzzle_weight_decay});
  }
  const double per_epoch = static_cast<double>(steps_per_epoch());
  const double by_epochs = per_epoch * static_cast<double>(config.train.epochs);
  const auto run = static_cast<double>(config.train.steps), total = static_cast<double>(config.schedule.total);
  model_.set_run_steps(total > 0 ? total * (config.schedule.unit == "step" ? 1 : per_epoch)
                       : run > 0 ? std::min(run, by_epochs)
                                 : by_epochs);
}

std::int64_t HrmProgram::end_of(std::int64_t first) const {
  return (first / per_step_ + 1) * epoch_length() / model_.sampler().batches();
}

StepResult HrmProgram::step(const TrainState& state, double lr, Ema* average, unsigned flags) {
  // If puzzles have several examples, epochs differ in their number of batches: positions are spread evenly over the
  // batches.
  const std::int64_t batches = model_.begin_epoch(state.epoch), length = epoch_length();
  const bool gpu = step_.stays_on_gpu();
  const GlobalBatch global = {.seed = config_.run.seed,
                              .epoch = state.epoch,
                              .step = state.step,
                              .first = (state.position * batches + length - 1) / length * per_step_,
                              .count = per_step_,
                              .micro = batch_,
                              .loss_scale = gpu ? 1 : loss_scale(config_, state, per_step_)};
  StepResult result = {.advance = end_of(global.first) - state.position, .samples = per_step_};
  settled_ = false;
  if (gpu) {
    profile::Phase phase("step on the GPU", result.compute);
    step_.start(global, flags, {.lr = lr, .loss_scale = state.loss_scale, .average = average});
    epoch_ = state.epoch;
    result.outcome = outcome(step_.take(false));
    phase.end();
  } else {
    const StepSums sums = step_.run(global, flags);
    result.compute = step_.seconds().compute;
    result.reduce = step_.seconds().reduce;
    StepOutcome& outcome = result.outcome.emplace(
        StepOutcome{.step = state.step, .loss = sums.loss, .weight = sums.weight, .flags = sums.flags});
    profile::Phase phase("update", result.update);
    const double weight = global.loss_scale * outcome.weight;
    outcome.norm = gradient_norm(step_.gradient(), ranges_) / weight;
    if (!overflowed(world_, config_, model_.params(), step_.gradient(), state, outcome)) {
      optimizer_->step(step_.gradient(), lr, clip_scale(outcome.norm, config_.optim.clip_norm) / weight, average);
      update_puzzle_table(lr * puzzle_rate_, average);
      add_scores(state.step);
    }
    phase.end();
  }
  return result;
}

std::optional<StepOutcome> HrmProgram::take_last() {
  if (!step_.stays_on_gpu()) return {};
  return outcome(step_.take(true));
}

std::optional<StepOutcome> HrmProgram::outcome(const std::optional<EndedStep>& ended) {
  const std::optional<StepOutcome> found = outcome_of(world_, config_, model_.params(), epoch_, ended);
  if (found && !found->skipped) add_scores(found->step);
  return found;
}

void HrmProgram::add_scores(std::int64_t step) {
  const std::span<const ops::HaltingScore> scores = model_.slots().scores(step);
  for (std::size_t i = 0; i < scores.size(); ++i) interval_[i] += scores[i];
  ++interval_steps_;
}

std::pair<ops::HaltingScore, double> HrmProgram::take_scores() {
  gather(std::as_writable_bytes(std::span(interval_)), "scores");
  ops::HaltingScore sum;
  for (ops::HaltingScore& score : interval_) sum += std::exchange(score, {});
  return {sum, static_cast<double>(std::exchange(interval_steps_, 0) * per_step_)};
}

void HrmProgram::update_puzzle_table(double lr, Ema* average) {
  const Param* table = model_.network().puzzle_table();
  if (table == nullptr) return;
  HrmSlots& slots = model_.slots();
  gather(slots.identifiers, "puzzle identifiers");
  gather(slots.puzzle_gradient, "puzzle gradients");
  scratch_.reset();
  // The table is not averaged: its shadow is a copy.
  const Tensor shadow = average != nullptr ? average->state()[static_cast<std::size_t>(table->index)].value : Tensor{};
  sign_sgd_rows(scratch_, table->value, slots.identifiers, slots.puzzle_gradient, lr,
                model_.options().puzzle_weight_decay, shadow);
}

void HrmProgram::gather(const Tensor& rows, const char* what) {
  if (world_.communicator().size() == 1) return;
  const HostView host(rows, HostView::Access::write);
  gather({static_cast<std::byte*>(host->raw()), host->size_bytes()}, what);
}

void HrmProgram::gather(std::span<std::byte> rows, const char* what) {
  Communicator& comm = world_.communicator();
  if (comm.size() == 1) return;
  const std::int64_t row_bytes = std::ssize(rows) / per_step_;
  const GlobalBatch slots = {.first = 0, .count = per_step_, .micro = batch_};
  for (std::int64_t micro = 0; micro < config_.batch.accumulate; ++micro) {
    const std::int64_t before = micro * batch_;
    const auto part = [&](int rank) {
      const Shard of = step_.rank_part(slots, micro, rank);
      return ShardRange{(of.first - before) * row_bytes, (of.first - before + of.count) * row_bytes};
    };
    all_gather_parts(
        comm, rows.subspan(static_cast<std::size_t>(before * row_bytes), static_cast<std::size_t>(batch_ * row_bytes)),
        part, what);
  }
}

void HrmProgram::settle() {
  if (settled_) return;
  for (const NamedTensor& t : vectors()) gather(t.value, "carried states");
  settled_ = true;
}

std::vector<NamedTensor> HrmProgram::vectors() {
  HrmSlots& s = model_.slots();
  return {{"carry/z_H", s.z_h},
          {"carry/z_L", s.z_l},
          {"carry/steps", s.steps},
          {"carry/halted", s.halted},
          {"carry/inputs", s.inputs},
          {"carry/labels", s.labels},
          {"carry/puzzle_identifiers", s.identifiers}};
}

void HrmProgram::resumed() {
  world_.together("reading the carried states", [&] { model_.check_slots(); });
}

std::vector<Metric> HrmProgram::interval_metrics() {
  const auto [sum, sequences] = take_scores();
  return score_metrics(sum, sequences, "");
}

std::vector<std::pair<std::string, std::string>> HrmProgram::facts() {
  const std::int64_t accumulate = config_.batch.accumulate;
  const std::string micro = accumulate > 1 ? join(" in ", accumulate, " micro-batches of ", batch_) : "";
  const HrmArch& a = model_.network().arch();
  return {{"batch", join(per_step_, " slots over all ranks", micro, ", ", samples_of_each(per_step_, world_.size()),
                         " per rank; every group ", model_.options().visits,
                         " times per epoch; an incomplete last batch is dropped")},
          {"recurrence",
           join(a.h_cycles, " x ", a.l_cycles, " cycles, at most ", model_.options().loss.halt_max_steps, " segments",
                model_.options().depth_curriculum ? "; a third of the cycles below 30 % of the run, two "
                                                    "thirds below 60 %"
                                                  : "")}};
}

namespace {
void require_supported(const RunConfig& config, const Tries& tries) {
  require_usage(config.eval.max_samples == 0 || tries.count == 1, "option eval.max_samples = ", config.eval.max_samples,
                ": with eval.tries = ", tries.count, " an evaluation tries all puzzles; set eval.max_examples instead");
}
}  // namespace

void require_supported_hrm(const RunConfig& config, int) {
  require_supported(config, dynamic_cast<const HrmConfig&>(*config.task).tries());
}

std::unique_ptr<TrainingProgram> HrmTask::make_program(World& world, const RunConfig& config, int threads) {
  require_supported(config, options_.tries);
  return std::make_unique<HrmProgram>(world, config, *this, threads);
}

std::vector<Metric> HrmTask::collective_metrics(Communicator& comm, Split split, int threads) const {
  if (data_.arc_names.empty()) return tries_metrics(comm, *this, split, threads);
  auto ballots = values_of<ArcBallot>(comm.all_gather(std::as_bytes(std::span(ballots_)), "votes").bytes);
  std::vector<Metric> rates;
  for (const auto& [attempts, rate] : arc_pass_rates(std::move(ballots)))
    rates.push_back({join("pass@", attempts), rate, true});
  return rates;
}

std::vector<std::string> HrmTask::collective_metric_names() const {
  if (data_.arc_names.empty()) return tries_metric_names(options_.tries);
  std::vector<std::string> names;
  for (const auto& [attempts, rate] : arc_pass_rates({ArcBallot{}})) names.push_back(join("pass@", attempts));
  return names;
}

}  // namespace lockstep
