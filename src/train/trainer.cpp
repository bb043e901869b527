#include "lockstep/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/stopping.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

namespace {

/// Minimum time between two writes of best.h5 during the run.
constexpr double kBestEverySeconds = 10;

/// schedule.total = 0 is the length of the run. A run that ends within its warm-up never reaches the cosine.
ScheduleOptions resolved(ScheduleOptions schedule, std::int64_t epochs, std::int64_t steps) {
  if (schedule.total == 0) schedule.total = std::max(schedule.unit == "step" ? steps : epochs, schedule.warmup + 1);
  return schedule;
}

}  // namespace

const Metric* loss_of(const std::vector<Metric>& metrics) {
  const auto found = std::find_if(metrics.begin(), metrics.end(), [](const Metric& m) { return m.name == "loss"; });
  return found == metrics.end() ? nullptr : &*found;
}

Trainer::Impl::Impl(World& w, const RunConfig& c, Task& m)
    : world(w),
      comm(w.communicator()),
      config(c),
      model(m),
      threads(prepare_cpu(w, c)),
      program(m.make_program(w, c, threads)),
      schedule(resolved(c.schedule, c.train.epochs, last_step()), c.scaled_lr(w.size())) {
  if (c.optim.ema > 0) ema.emplace(m.params(), c.optim.ema);
  if (c.eval.best.empty()) return;
  // Sums of one: an output or a table that counts no sample would report no metric.
  std::vector<Metric> metrics =
      m.metrics(Split::validation, std::vector<double>(static_cast<std::size_t>(m.sum_count()), 1));
  for (const std::string& name : m.collective_metric_names()) metrics.push_back({name});
  deciding(metrics);
}

std::int64_t Trainer::Impl::last_step() const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  const std::int64_t per_epoch = program->steps_per_epoch();
  const std::int64_t by_epochs = config.train.epochs > kMost / per_epoch ? kMost : config.train.epochs * per_epoch;
  return config.train.steps > 0 ? std::min(config.train.steps, by_epochs) : by_epochs;
}

double Trainer::Impl::epochs_done() const {
  return static_cast<double>(state.epoch) +
         static_cast<double>(state.position) / static_cast<double>(program->epoch_length());
}

Outcome Trainer::Impl::run() {
  const auto every = [&](std::int64_t steps) { return steps > 0 && state.step % steps == 0; };
  for (;;) {
    if (state.position == program->epoch_length()) end_epoch();  // evaluates, applies the stopping rules
    if (!state.stop_reason.empty() || state.step >= last_step()) return finish();
    if (std::exchange(checkpoint_due, false)) save_step_file();

    world.at("train", state.step);
    const double lr = schedule.lr(state.step, state.epoch);
    const StepResult done = program->step(state, lr, average(), flags());  // forward, backward, reduce, clip, update
    add(done, lr);

    if (every(config.dist.check_every)) check_weights();
    if (every(config.train.log_every)) log_interval();
    if (every(config.checkpoint.every_steps) || (done.flags & kCheckpoint)) checkpoint_due = true;
    if (done.flags & kStop) return interrupt();
  }
}

void Trainer::Impl::add(const StepResult& done, double lr) {
  if (done.weight > 0) {
    const double mean = done.loss / done.weight;
    state.epoch_loss += done.loss;
    state.epoch_weight += done.weight;
    state.epoch_batch_means += mean;
    state.epoch_gradient_norms += done.norm;
    ++state.epoch_steps;
    interval.loss += done.loss;
    interval.weight += done.weight;
    interval.batch_means += mean;
    interval.norm = done.norm;
    ++interval.steps;
  }
  if (done.scaled) {
    state.loss_scale.update(!done.skipped);
    interval.scaled = true;
    if (done.skipped) {
      ++interval.skipped;
      log::info("step ", state.step,
                ": the gradient overflows in fp16 and the step is skipped; the loss scale falls to ",
                state.loss_scale.value);
    }
  }
  interval.lr = lr;
  ++state.step;
  state.position += done.advance;
  interval.samples += done.samples;
  interval.compute += done.compute;
  interval.reduce += done.reduce;
  interval.update += done.update;
  const double loss = interval.weight > 0 ? interval.loss : state.epoch_loss,
               weight = interval.weight > 0 ? interval.weight : state.epoch_weight;
  log->progress(state.step, weight > 0 ? loss / weight : -1);
}

void Trainer::Impl::check_weights() {
  program->settle();
  require_same_weights(world, model.params().hash(), state.step);
}

void Trainer::Impl::end_epoch() {
  if (config.train.log_every == 0) log_interval();
  std::vector<std::pair<std::string, double>> record = {{"epoch", static_cast<double>(state.epoch + 1)},
                                                        {"step", static_cast<double>(state.step)},
                                                        {"lr", schedule.lr(state.step - 1, state.epoch)}};
  if (const auto steps = static_cast<double>(state.epoch_steps); steps > 0)  // not all were skipped or without targets
    record.insert(record.end(), {{"loss", state.epoch_loss / state.epoch_weight},
                                 {"loss_unweighted", state.epoch_batch_means / steps},
                                 {"gradient_norm", state.epoch_gradient_norms / steps}});
  program->end_epoch(state, record);
  ++state.epoch;
  state.position = state.epoch_steps = 0;
  state.epoch_loss = state.epoch_weight = state.epoch_batch_means = state.epoch_gradient_norms = 0;

  const bool due = state.epoch % config.eval.every == 0 || state.step >= last_step();  // always after the last epoch
  if (model.size(Split::validation) > 0 && due) {
    validate(record);
  } else {
    state.history.append(record);
  }
  if (state.stop_reason.empty()) state.stop_reason = stop_reason_of_epoch(config.stop, state);
  if (config.checkpoint.every > 0 && state.epoch % config.checkpoint.every == 0) checkpoint_due = true;
}

void Trainer::Impl::validate(std::vector<std::pair<std::string, double>>& record) {
  world.at("evaluate", state.step);
  double seconds = 0;
  std::vector<MetricTable> tables;
  std::vector<Metric> metrics = evaluate_average(Split::validation, &seconds, &tables);
  Metric decides;
  world.together("choosing the best weights", [&] { decides = deciding(metrics); });
  const Metric* loss = loss_of(metrics);
  const Metric watched = loss != nullptr ? *loss : metrics.front();
  if (config.jacobian.every > 0 && state.epoch % config.jacobian.every == 0) {
    const WithAverage with(average(), model.params());
    std::vector<Metric> more = model.diagnostics();
    // Decisions follow rank 0's: on other processors the last digits may differ.
    std::vector<double> values;
    for (const Metric& m : more) values.push_back(m.value);
    comm.broadcast(std::as_writable_bytes(std::span(values)), 0, "sensitivity metrics");
    for (std::size_t i = 0; i < more.size(); ++i) more[i].value = values[i];
    metrics.insert(metrics.end(), more.begin(), more.end());
  }
  for (const Metric& m : metrics) record.emplace_back(m.name == "loss" ? kValidationLoss : m.name, m.value);
  state.history.append(record);
  schedule.observe(watched.larger_is_better ? -watched.value : watched.value);
  state.schedule = schedule.state();

  const bool better =
      std::isfinite(decides.value) &&
      (state.best_epoch < 0 || (decides.larger_is_better ? decides.value > state.best : decides.value < state.best));
  if (better) {
    state.best = decides.value;
    state.best_epoch = state.epoch;
    state.seconds = seconds_before + session.seconds();
  }
  note_score(state, decides.value, decides.larger_is_better, config.stop.min_delta);
  state.stop_reason = stop_reason(config.stop, state);
  if (better && writes()) {
    best.keep(model.params(), average(), state);
    if (since_best_file.seconds() > kBestEverySeconds) write_best();
  }
  log_evaluation(Split::validation, metrics, std::move(tables), seconds, better);
}

std::vector<Metric> Trainer::Impl::evaluate_average(Split split, double* seconds, std::vector<MetricTable>* tables) {
  Stopwatch watch;
  program->settle();
  const WithAverage with(average(), model.params());
  std::vector<Metric> metrics = evaluate(comm, model, split, threads, tables);
  require(!metrics.empty(), "the model reports no metric for its ", name(split), " samples");
  *seconds = watch.seconds();
  interval.evaluate += *seconds;
  return metrics;
}

const Metric& Trainer::Impl::deciding(const std::vector<Metric>& metrics) const {
  const std::string& wanted = config.eval.best;
  if (wanted.empty()) return metrics.front();
  std::vector<std::string> names;
  for (const Metric& m : metrics) {
    if (m.name == wanted) return m;
    names.push_back(m.name);
  }
  const std::string near = nearest(wanted, names);
  throw Error(Fault::usage,
              join("option eval.best = ", wanted, ": the model reports no such metric",
                   near.empty() ? "; its first one is " + names.front() : "; did you mean " + near + "?"));
}

unsigned Trainer::Impl::flags() {
  unsigned flags = 0;
  if (signals->received() != 0) {
    stopped_by = signals->name();
    flags |= kStop;
  }
  if (!writes()) return flags;  // rank 0's clock decides
  const double limit = config.run.max_hours * 3600;
  // Leaves time for a checkpoint that takes twice as long as the slowest so far.
  if (limit > 0 && session.seconds() > std::max(limit - 2 * checkpoint_seconds, limit / 2)) {
    stopped_by = "run.max_hours";
    flags |= kStop;
  }
  const double minutes = config.checkpoint.every_minutes;
  if (minutes > 0 && since_checkpoint.seconds() > 60 * minutes) flags |= kCheckpoint;
  return flags;
}

Trainer::Trainer(World& world, const RunConfig& config, Task& model) {
  // A configuration error occurs on every rank: together() prints it once.
  world.together("preparing the training", [&] { impl_ = std::make_unique<Impl>(world, config, model); });
}
Trainer::~Trainer() = default;

std::int64_t Trainer::steps_per_epoch() const { return impl_->program->steps_per_epoch(); }
std::int64_t Trainer::last_step() const { return impl_->last_step(); }
const TrainState& Trainer::state() const { return impl_->state; }
std::vector<std::pair<std::string, std::string>> Trainer::facts() { return impl_->facts(); }
void Trainer::resume(const std::filesystem::path& checkpoint) { impl_->resume(checkpoint); }

Outcome Trainer::run(RunLog& log, const std::filesystem::path& run_dir) {
  const StopSignals signals;
  impl_->log = &log;
  impl_->folder.emplace(run_dir);
  impl_->signals = &signals;
  impl_->session.restart();
  impl_->interval = {};
  return impl_->run();
}

}  // namespace lockstep
