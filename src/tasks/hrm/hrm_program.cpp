#include "tasks/hrm/hrm_program.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/optim/sign_sgd.hpp"

namespace lockstep {

HrmProgram::HrmProgram(World& world, const RunConfig& config, HrmTask& model, int threads)
    : ShardedProgram(world, config, model, threads, config.global_batch(world.size()), {}),
      model_(model),
      puzzle_rate_(model.options().puzzle_lr > 0 ? model.options().puzzle_lr / config.optim.lr : 1) {
  model_.begin_run(per_step_);
  epoch_.steps = model_.sampler().nominal_batches();
  epoch_.positions = epoch_.steps * per_step_;
  interval_.resize(per_step_);
  if (const Param* table = model.network().puzzle_table(); table != nullptr && gpu_update() != nullptr) {
    const HrmSlots& slots = model.slots();
    gpu_update()->descend({.table = table,
                           .ids = slots.identifiers,
                           .gradients = slots.puzzle_gradient,
                           .rate = puzzle_rate_,
                           .weight_decay = model.options().puzzle_weight_decay});
  }
  const auto per_epoch = static_cast<double>(epoch_.steps);
  const double by_epochs = per_epoch * static_cast<double>(config.train.epochs);
  const auto run = static_cast<double>(config.train.steps), total = static_cast<double>(config.schedule.total);
  model_.set_run_steps(total > 0 ? total * (config.schedule.unit == "step" ? 1 : per_epoch)
                       : run > 0 ? std::min(run, by_epochs)
                                 : by_epochs);
}

GlobalBatch HrmProgram::batch_at(const TrainState& state) {
  settled_ = false;
  // If puzzles have several examples, epochs differ in their number of batches: positions are spread evenly over the
  // batches.
  const std::int64_t batches = model_.begin_epoch(state.epoch), length = epoch_.positions;
  return {.seed = config_.run.seed,
          .epoch = state.epoch,
          .step = state.step,
          .first = (state.position * batches + length - 1) / length * per_step_,
          .count = per_step_,
          .micro = batch_};
}

std::int64_t HrmProgram::end_of(const GlobalBatch& batch) const {
  return (batch.first / per_step_ + 1) * epoch_.positions / model_.sampler().batches();
}

void HrmProgram::updated(std::int64_t step) {
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

void HrmProgram::prepare_update() {
  if (model_.network().puzzle_table() == nullptr) return;
  gather(model_.slots().identifiers, "puzzle identifiers");
  gather(model_.slots().puzzle_gradient, "puzzle gradients");
}

void HrmProgram::update_more(double lr, Ema* average) {
  const Param* table = model_.network().puzzle_table();
  if (table == nullptr) return;
  const HrmSlots& slots = model_.slots();
  scratch_.reset();
  // The table is not averaged: its shadow is a copy.
  const Tensor shadow = average != nullptr ? average->state()[table->index].value : Tensor{};
  sign_sgd_rows(scratch_, table->value, slots.identifiers, slots.puzzle_gradient, lr * puzzle_rate_,
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
      const Shard of = sharded_step().rank_part(slots, micro, rank);
      return ShardRange{(of.first - before) * row_bytes, (of.first - before + of.count) * row_bytes};
    };
    all_gather_parts(comm, rows.subspan(before * row_bytes, batch_ * row_bytes), part, what);
  }
}

std::optional<StepOutcome> HrmProgram::settle(UpTo what) {
  const std::optional<StepOutcome> last = ShardedProgram::settle(what);
  if (what != UpTo::outcomes && !std::exchange(settled_, true))
    for (const NamedTensor& t : carried()) gather(t.value, "carried states");
  return last;
}

std::vector<NamedTensor> HrmProgram::carried() const {
  HrmSlots& s = model_.slots();
  return {{"carry/z_H", s.z_h},
          {"carry/z_L", s.z_l},
          {"carry/steps", s.steps},
          {"carry/halted", s.halted},
          {"carry/inputs", s.inputs},
          {"carry/labels", s.labels},
          {"carry/puzzle_identifiers", s.identifiers}};
}

ProgramState HrmProgram::state() {
  ProgramState all = ShardedProgram::state();
  all.vectors = carried();
  return all;
}

void HrmProgram::resumed() {
  world_.together("reading the carried states", [&] { model_.check_slots(); });
}

std::vector<Metric> HrmProgram::interval_metrics() {
  const auto [sum, sequences] = take_scores();
  return score_metrics(sum, sequences, "");
}

ProgramFacts HrmProgram::facts() {
  const HrmArch& a = model_.network().arch();
  ProgramFacts all = ShardedProgram::facts();
  const std::int64_t visits = model_.options().visits, puzzles = model_.size(Split::train),
                     dropped = puzzles - epoch_.positions, every = config_.eval.every, epochs = config_.train.epochs;
  std::string loss;
  if (50 * dropped > puzzles)
    loss = join(": ", dropped, " of ", puzzles, " puzzles of each epoch; with --data.group_visits ",
                visits * std::max<std::int64_t>(every, 10),
                every > 1 && epochs % every == 0
                    ? join(" --epochs ", epochs / every, " --eval.every 1 batches run on over ", every,
                           " epochs, as in the public code")
                    : " and fewer epochs it is less");
  all.lines = {
      {"batch", join(config_.batch_text(per_step_, world_.size()), micro_batches(), "; every group ", visits,
                     " times per epoch; an incomplete last batch is dropped", loss)},
      {"recurrence",
       join(a.h_cycles, " x ", a.l_cycles, " cycles, at most ", model_.options().loss.halt_max_steps, " segments",
            model_.options().depth_curriculum ? "; a third of the cycles below 30 % of the run, two thirds below 60 %"
                                              : "")}};
  return all;
}

std::unique_ptr<TrainingProgram> HrmTask::make_program(World& world, const RunConfig& config, int threads) {
  config.task->require_supported(config, world.size());
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
